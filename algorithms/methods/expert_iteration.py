"""Expert iteration: search, keep what was proved, imitate it, and now and then start over from the base weights (BFS-Prover-V2)."""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.experience_replay import SolvedSteps
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.schedules import RaiseOnPlateau
from agentrl_jax.algorithms.strategies.planned import is_lemma
from agentrl_jax.algorithms.strategies.recallable import about, task_of
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.record import record
from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.trajectories import Group, Trajectory, Turn

RESOLVING = 1_000_000_000  # added to the step in the keys of searches that solve anew


def accepted(turn: Turn) -> bool:
    """Whether the world took the action: what it refused is on nobody's path."""
    return bool(turn.info.get("legal", True))


@record
class Started:
    """What training keeps on the device beside the policy."""

    update: Any  # what the update keeps
    start: Params | None  # the base weights, where training starts over


@dataclass
class Restart:
    """When the share of tasks solved no longer grows: solve again, keep the best, and imitate that from the base weights on.

    Of each stored task that is solved again the shortest new proof takes the place of the old. All numbers here are unpublished.
    """

    plateau: RaiseOnPlateau  # watches the share of a step's tasks that were solved; each of its raises is a restart
    updates: int  # of the base weights before the rounds go on
    resolve: Strategy | None = None  # solves again; None: what is stored is kept
    tasks: int = 256  # of those stored last that are solved again


@dataclass
class ExpertIterationConfig:
    """Each step stores the new solved pairs, draws some of all that are stored and gives them to `update`.

    `update` is `dialogue.bfs_prover(low, high)`: weighted likelihood of those in the middle under the policy. Rollouts are for a strategy
    to make: `strategies.BestFirst`, or `Independent` for expert iteration without a search.
    """

    update: PolicyGradientConfig
    store: SolvedSteps = field(default_factory=lambda: SolvedSteps(65_536, accepted))
    draw: int = 256  # pairs an update, of all processes
    updates: int = 1  # a step
    restart: Restart | None = None

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "ExpertIteration":
        return ExpertIteration(self, policy, mesh, steps)


class ExpertIteration:
    """Implements `Algorithm`."""

    def __init__(self, config: ExpertIterationConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)  # the store and the plateau are this run's own
        if min(c.draw, c.updates) < 1 or (c.restart and min(c.restart.updates, c.restart.tasks) < 1):
            raise UserError("expert iteration needs draw, updates, and a restart's updates and tasks >= 1")
        self._update = c.update.build(policy, mesh, steps * c.updates)
        self._steps, self._hosts, self._key, self._seed = 0, Hosts(), jax.random.key(0), 0

    def init(self, key: Array, params: Params) -> TrainState:
        self._key, self._seed = key, int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        start = jax.tree.map(jnp.copy, params) if self._config.restart else None
        return _beside(self._update.init(key, params), start)

    def host_state(self) -> Any:
        c = self._config
        own = {"store": c.store.state(), "plateau": c.restart.plateau.state() if c.restart else None}
        return {"steps": self._steps, "update": self._update.host_state(), "own": self._hosts.gather("what was solved", own)}

    def load_host_state(self, state: Any) -> None:
        """A process that is new takes what the last one of before remembered."""
        c, own = self._config, state["own"][min(jax.process_index(), len(state["own"]) - 1)]
        self._steps = state["steps"]
        self._update.load_host_state(state["update"])
        c.store.load(own["store"])
        if c.restart:
            c.restart.plateau.load(own["plateau"])

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        c, hosts, step = self._config, runtime.hosts, self._steps
        self._steps, self._hosts = step + 1, hosts
        rng = np.random.default_rng([self._seed, step, hosts.index])
        c.store.add(experience)
        metrics, updates = self._told(experience, hosts), c.updates
        if c.restart and self._stuck(metrics["theorems/solved"]):
            metrics["restarts/resolved"] = float(self._resolved(runtime, step))
            state, updates = _beside(self._update.init(self._key, state.extra.start), state.extra.start), c.restart.updates
        inner, on_device = dataclasses.replace(state, extra=state.extra.update), []
        for _ in range(updates):
            drawn = c.store.draw(len(hosts.mine(range(c.draw))), rng)
            inner, found = self._update.step(inner, [Group(one.task, (_weighed(one),)) for one in drawn], runtime)
            on_device += found.pop("device")
            metrics |= found
        metrics["restarts"] = float(c.restart.plateau.value if c.restart else 0)
        return _beside(inner, state.extra.start), metrics | {"device": on_device}

    def _told(self, experience: Sequence[Group], hosts: Hosts) -> dict[str, float]:
        """What this step's searches came to."""
        solved = [any(t.success and not is_lemma(t) for t in group.trajectories) for group in experience]
        taken = [t.turns[-1].info.get("search", {}).get("expansions") for group in experience for t in group.trajectories if t.turns]
        known = [one for one in taken if one is not None]
        counts = [sum(solved), len(solved), len(self._config.store), sum(known), len(known)]
        wins, tasks, pairs, expansions, searches = np.sum(hosts.gather("theorems", counts), axis=0).tolist()
        found = {"theorems/solved": wins / max(tasks, 1), "store/pairs": float(pairs)}
        return found | ({"search/expansions_of_a_proof": expansions / searches} if searches else {})

    def _stuck(self, solved: float) -> bool:
        assert self._config.restart is not None
        plateau = self._config.restart.plateau
        before = plateau.value
        plateau.observe(solved)
        return plateau.value != before

    def _resolved(self, runtime: Runtime, step: int) -> int:
        """Solve what is stored anew; how many tasks have a new proof."""
        restart, store = self._config.restart, self._config.store
        assert restart is not None
        if restart.resolve is None:
            return 0
        steps = store.all()
        if any(task_of(one) is None for one in steps):
            raise UserError("what is stored does not say its task, so it cannot be solved again: wrap the strategy in Recallable")
        tasks = {one.task: task for one in steps if (task := task_of(one)) is not None}
        last = list(dict.fromkeys(one.task for one in reversed(steps)))[: restart.tasks]
        again = [tasks[name] for name in last]
        groups = runtime.collect(restart.resolve, again, (self._seed, RESOLVING + step), hosts=Hosts())  # each process its own
        told = [(tasks[name], min(proofs, key=lambda t: len(t.turns))) for name, proofs in zip(last, map(_proofs, groups)) if proofs]
        store.forget({task.name for task, _ in told})
        store.add([Group(task.name, (about(proof, task),)) for task, proof in told])
        return len(told)


def _beside(state: TrainState, start: Params | None) -> TrainState:
    return dataclasses.replace(state, extra=Started(update=state.extra, start=start))


def _weighed(step: Trajectory) -> Trajectory:
    """Weight 1, unless whoever found the proof said otherwise."""
    return step.replace(turns=tuple(dataclasses.replace(turn, info={"weight": 1.0, **turn.info}) for turn in step.turns))


def _proofs(group: Group) -> list[Trajectory]:
    return [trajectory for trajectory in group.trajectories if trajectory.success and not is_lemma(trajectory)]
