"""Expert iteration: search, store solved steps, imitate them, and on a plateau restart from the
base weights (BFS-Prover-V2).
"""

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

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.experience.replay import SolvedSteps
from agentrl_jax.algorithms.experience.schedules import RaiseOnPlateau
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.strategies.planner_search import is_lemma
from agentrl_jax.algorithms.strategies.task_reference import task_from_info, with_task_info
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pytree import pytree_dataclass
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Group, Trajectory, Turn

RESOLVE_KEY_OFFSET = (
    1_000_000_000  # added to the step in the keys of searches that solve tasks again
)


def is_legal_turn(turn: Turn) -> bool:
    """Whether the environment accepted the action; a refused action is on no path."""
    return bool(turn.info.get("legal", True))


@pytree_dataclass
class ExpertIterationAuxState:
    """Auxiliary training state on the device."""

    update_aux: Any  # the auxiliary state of the update
    base_params: Params | None  # the weights that a restart begins with


@dataclass
class Restart:
    """When the fraction of solved tasks no longer grows: solve stored tasks again and imitate the
    shortest proofs from the base weights on.

    The shortest new proof of a task replaces its stored steps. All numbers here are unpublished.
    """

    # observes the fraction of a step's tasks that were solved; each of its raises is a restart
    plateau: RaiseOnPlateau
    num_updates: int  # of the base weights before the rounds continue
    resolve_strategy: Strategy | None = None  # solves tasks again; None: the stored steps stay
    max_tasks: int = 256  # of the most recently stored tasks that are solved again


@dataclass
class ExpertIterationConfig:
    """Each step stores the new solved (state, action) pairs, samples from all stored pairs and
    trains `update` on them.

    `update` is `multi_turn.bfs_prover(low, high)`: weighted likelihood of the pairs whose negative
    log-likelihood lies in the middle. The rollout strategy is `strategies.BestFirstSearch`, or
    `IndependentEpisodes` for expert iteration without a search.
    """

    update: PolicyGradientConfig
    store: SolvedSteps = field(default_factory=lambda: SolvedSteps(65_536, is_legal_turn))
    batch: int = 256  # pairs per update, of all processes
    num_updates: int = 1  # per step
    restart: Restart | None = None

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "ExpertIteration":
        return ExpertIteration(self, policy, mesh, steps)


class ExpertIteration(Algorithm):
    """Implements `Algorithm`."""

    def __init__(
        self, config: ExpertIterationConfig, policy: Policy, mesh: Mesh, steps: int
    ) -> None:
        self._config = c = copy.deepcopy(config)  # store and plateau belong to this algorithm
        if min(c.batch, c.num_updates) < 1 or (
            c.restart and min(c.restart.num_updates, c.restart.max_tasks) < 1
        ):
            raise UserError(
                "expert iteration needs batch, num_updates, and a restart's num_updates and "
                "max_tasks >= 1"
            )
        self._update = c.update.build(policy, mesh, steps * c.num_updates)
        self._steps, self._seed = 0, 0
        self._process_group, self._key = ProcessGroup(), jax.random.key(0)

    def init(self, key: Array, params: Params) -> TrainState:
        self._key, self._seed = key, int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        base_params = jax.tree.map(jnp.copy, params) if self._config.restart else None
        return _with_aux(self._update.init(key, params), base_params)

    def host_state(self) -> Any:
        c = self._config
        local_state = {
            "store": c.store.state(),
            "plateau": c.restart.plateau.state() if c.restart else None,
        }
        return {
            "steps": self._steps,
            "update": self._update.host_state(),
            "own": self._process_group.all_gather("solved steps", local_state),
        }

    def load_host_state(self, state: Any) -> None:
        """A process that did not exist when the checkpoint was written takes the last one's."""
        c = self._config
        local_state = state["own"][min(jax.process_index(), len(state["own"]) - 1)]
        self._steps = state["steps"]
        self._update.load_host_state(state["update"])
        c.store.load(local_state["store"])
        if c.restart:
            c.restart.plateau.load(local_state["plateau"])

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        c, process_group, step = self._config, runtime.process_group, self._steps
        self._steps, self._process_group = step + 1, process_group
        rng = np.random.default_rng([self._seed, step, process_group.index])
        c.store.add(experience)
        metrics, num_updates = self._search_metrics(experience, process_group), c.num_updates
        base_params = state.extra.base_params
        if c.restart and self._has_plateaued(metrics["theorems/solved"]):
            metrics["restarts/resolved"] = float(self._resolve_tasks(runtime, step))
            state = _with_aux(self._update.init(self._key, base_params), base_params)
            num_updates = c.restart.num_updates
        inner, device_metrics = dataclasses.replace(state, extra=state.extra.update_aux), []
        for _ in range(num_updates):
            pairs = c.store.sample(len(process_group.local_items(range(c.batch))), rng)
            groups = [Group(pair.task, (_with_default_weight(pair),)) for pair in pairs]
            inner, update_metrics = self._update.step(inner, groups, runtime)
            device_metrics += update_metrics.pop("device")
            metrics |= update_metrics
        metrics["restarts"] = float(c.restart.plateau.value if c.restart else 0)
        return _with_aux(inner, base_params), metrics | {"device": device_metrics}

    def _search_metrics(
        self, experience: Sequence[Group], process_group: ProcessGroup
    ) -> dict[str, float]:
        """The outcomes of this step's searches."""
        solved = [
            any(succeeded(t) and not is_lemma(t) for t in group.trajectories)
            for group in experience
        ]
        expansions_of = [
            t.turns[-1].info.get("search", {}).get("expansions")
            for group in experience
            for t in group.trajectories
            if t.turns
        ]
        known = [expansions for expansions in expansions_of if expansions is not None]
        counts = [sum(solved), len(solved), len(self._config.store), sum(known), len(known)]
        wins, tasks, pairs, expansions, searches = np.sum(
            process_group.all_gather("theorems", counts), axis=0
        ).tolist()
        metrics = {"theorems/solved": wins / max(tasks, 1), "store/pairs": float(pairs)}
        if searches:
            metrics["search/expansions_of_a_proof"] = expansions / searches
        return metrics

    def _has_plateaued(self, solved_fraction: float) -> bool:
        assert self._config.restart is not None
        plateau = self._config.restart.plateau
        before = plateau.value
        plateau.observe(solved_fraction)
        return plateau.value != before

    def _resolve_tasks(self, runtime: Runtime, step: int) -> int:
        """Solve stored tasks again; the number of tasks with a new proof."""
        restart, store = self._config.restart, self._config.store
        assert restart is not None
        if restart.resolve_strategy is None:
            return 0
        steps = store.trajectories()
        if any(task_from_info(pair) is None for pair in steps):
            raise UserError(
                "a stored step has no reference to its task, so the task cannot be solved again: "
                "wrap the strategy in WithTaskReference"
            )
        tasks = {pair.task: task for pair in steps if (task := task_from_info(pair)) is not None}
        recent = list(dict.fromkeys(pair.task for pair in reversed(steps)))[: restart.max_tasks]
        groups = runtime.collect(
            restart.resolve_strategy,
            [tasks[name] for name in recent],
            (self._seed, RESOLVE_KEY_OFFSET + step),
            process_group=ProcessGroup(),  # each process solves the tasks that it stored
        )
        shortest = [
            (tasks[name], min(proofs, key=lambda t: len(t.turns)))
            for name, proofs in zip(recent, map(_proofs_of_task, groups))
            if proofs
        ]
        store.drop_tasks({task.name for task, _ in shortest})
        store.add([Group(task.name, (with_task_info(proof, task),)) for task, proof in shortest])
        return len(shortest)


def _with_aux(state: TrainState, base_params: Params | None) -> TrainState:
    return dataclasses.replace(
        state, extra=ExpertIterationAuxState(update_aux=state.extra, base_params=base_params)
    )


def _with_default_weight(step: Trajectory) -> Trajectory:
    """Weight 1 in the loss, unless the strategy set another."""
    return step.replace(
        turns=tuple(
            dataclasses.replace(turn, info={"weight": 1.0, **turn.info}) for turn in step.turns
        )
    )


def _proofs_of_task(group: Group) -> list[Trajectory]:
    return [
        trajectory
        for trajectory in group.trajectories
        if succeeded(trajectory) and not is_lemma(trajectory)
    ]
