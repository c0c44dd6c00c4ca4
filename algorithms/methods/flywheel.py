"""UI-TARS-2's data flywheel (arXiv 2509.02544): what a verifier passes is imitated, what fails is read on as text, and play goes on."""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.experience_replay import Chosen
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.surrogates import reinforce
from agentrl_jax.engine import Sampling
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rows import Evidence, chains_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Call, Group, Trajectory

PHASES = ("read", "imitate")


def every_token(evidence: Evidence) -> np.ndarray:
    """1 for all that was written: plain likelihood."""
    return np.ones(len(evidence.token_turn))


def likelihood(**settings: Any) -> PolicyGradientConfig:
    """-log p of every written token, their mean."""
    return PolicyGradientConfig(**{"advantage": every_token, "aggregation": token_mean, "surrogate": reinforce, **settings})


def passed(trajectory: Trajectory) -> bool:
    """The environment is the verifier: success."""
    return trajectory.success is True


def failed(trajectory: Trajectory) -> bool:
    """It is known to have failed; where success is not known it is neither."""
    return trajectory.success is False


def as_text(trajectory: Trajectory) -> Trajectory:
    """The same rows, with every token but each row's first as one that was written: what continual pretraining reads."""
    turns = []
    for chain in chains_of(trajectory):
        (turn, last), ids = chain[-1], chain[-1][1].ids
        nothing = np.zeros(len(ids) - 1)
        call = Call(
            ids[:1], ids[1:], nothing.astype(np.float32), nothing.astype(np.int32) - 1, Sampling(), last.finish_reason, "demonstration"
        )
        turns.append(dataclasses.replace(trajectory.turns[turn], calls=(call,)))
    return trajectory.replace(turns=tuple(turns))


@dataclass
class FlywheelConfig:
    """Every so many steps of `play` the wheel turns: updates of `read` on what failed, then of `imitate` on what passed, then play goes on.

    The policy's weights go from one to the next; optimizers of `read` and `imitate` start anew at each turn. The paper tells of CT ->
    SFT -> RL loops and publishes neither their numbers nor how the pools are drawn from, so `every` and `updates` have no default.
    """

    play: PolicyGradientConfig  # `critics.ui_tars_2(...)`
    every: int
    updates: tuple[int, int]  # of `read` and of `imitate`, a turn of the wheel
    read: PolicyGradientConfig = field(default_factory=likelihood)
    imitate: PolicyGradientConfig = field(default_factory=likelihood)
    draw: int = 64  # episodes an update, of all processes
    failed: Chosen = field(default_factory=lambda: Chosen(4096, failed))  # a generative outcome model may judge in place of the environment
    passed: Chosen = field(default_factory=lambda: Chosen(4096, passed))

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Flywheel":
        return Flywheel(self, policy, mesh, steps)


class Flywheel:
    """Implements `Algorithm`."""

    def __init__(self, config: FlywheelConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)  # the pools are this run's own
        if min(c.every, c.draw) < 1 or min(c.updates) < 0:
            raise UserError("a flywheel needs every and draw >= 1, and updates >= 0")
        self._play = c.play.build(policy, mesh, steps)
        self._phases = [update.build(policy, mesh, max(n, 1)) for update, n in zip((c.read, c.imitate), c.updates)]
        self._steps, self._key, self._seed = 0, jax.random.key(0), 0
        self._hosts = Hosts()

    def init(self, key: Array, params: Params) -> TrainState:
        self._key, self._seed = key, int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        return self._play.init(key, params)

    def host_state(self) -> Any:
        own = [pool.state() for pool in self._pools]
        return {"steps": self._steps, "play": self._play.host_state(), "pools": self._hosts.gather("flywheel", own)}

    def load_host_state(self, state: Any) -> None:
        """A process that is new takes what the last one of before had stored."""
        self._steps = state["steps"]
        self._play.load_host_state(state["play"])
        for pool, own in zip(self._pools, state["pools"][min(jax.process_index(), len(state["pools"]) - 1)]):
            pool.load(own)

    @property
    def _pools(self) -> tuple[Chosen, Chosen]:
        return self._config.failed, self._config.passed

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        c, hosts = self._config, runtime.hosts
        self._steps, self._hosts = self._steps + 1, hosts
        state, metrics = self._play.step(state, experience, runtime)
        for pool in self._pools:
            pool.add(experience)
        stored = np.sum(hosts.gather("flywheel", [len(pool) for pool in self._pools]), axis=0).tolist()
        metrics |= {"flywheel/failed": float(stored[0]), "flywheel/passed": float(stored[1])}
        if self._steps % c.every == 0:
            params = state.params
            for phase, name in enumerate(PHASES):
                if stored[phase] and c.updates[phase]:
                    params, loss = self._taught(phase, params, runtime)
                    metrics[f"flywheel/{name}_loss"] = loss
            state = dataclasses.replace(state, params=params)
        return state, metrics | {"flywheel/turns": float(self._steps // c.every)}

    def _taught(self, phase: int, params: Params, runtime: Runtime) -> tuple[Params, float]:
        """The weights after a phase, and its last loss."""
        c, hosts, update, pool = self._config, runtime.hosts, self._phases[phase], self._pools[phase]
        rng = np.random.default_rng([self._seed, self._steps, phase, hosts.index])
        state = update.init(jax.random.fold_in(self._key, self._steps), params)
        last: dict[str, Any] = {}
        for _ in range(c.updates[phase]):
            drawn = pool.draw(len(hosts.mine(range(c.draw))), rng)
            texts = drawn if phase else [as_text(one) for one in drawn]
            state, found = update.step(state, [Group(one.task, (one,)) for one in texts], runtime)
            last = found["device"][-1] if found["device"] else last
        return state.params, float(last.get("loss", 0.0))
