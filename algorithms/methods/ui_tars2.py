"""UI-TARS-2's data flywheel (arXiv 2509.02544): trajectories that a verifier accepts are used for
fine-tuning, the others for continual pretraining, between phases of RL.
"""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.experience.replay import FilteredBuffer
from agentrl_jax.algorithms.losses.policy import REINFORCE
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.engine import Sampling
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs, call_chains
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Call, Group, Trajectory
from agentrl_jax.trajectory_record import TrajectoryTraining

PHASE_NAMES = ("read", "imitate")


def unit_advantage(credit_inputs: CreditInputs) -> np.ndarray:
    """1 on every policy-written token: plain likelihood."""
    return np.ones(len(credit_inputs.token_turn))


def maximum_likelihood(**settings: Any) -> PolicyGradientConfig:
    """The mean of -log p over the policy-written tokens."""
    return replace(
        PolicyGradientConfig(
            advantage=unit_advantage, aggregation=token_mean, surrogate=REINFORCE()
        ),
        **settings,
    )


def has_failed(trajectory: Trajectory) -> bool:
    """Not solved, or cut; the environment is the verifier."""
    return not succeeded(trajectory)


def as_pretraining_text(trajectory: Trajectory) -> Trajectory:
    """The same training sequences with every token but the first marked as policy-written, for
    continual pretraining.
    """
    turns = []
    for chain in call_chains(trajectory):
        (turn, last), ids = chain[-1], chain[-1][1].ids
        zeros = np.zeros(len(ids) - 1)
        call = Call(
            ids[:1],
            ids[1:],
            zeros.astype(np.float32),
            zeros.astype(np.int32) - 1,
            Sampling(),
            last.finish_reason,
            "demonstration",
        )
        turns.append(dataclasses.replace(trajectory.turns[turn], calls=(call,)))
    return trajectory.replace(turns=tuple(turns))


@dataclass
class FlywheelConfig:
    """Every `every` steps of `rl` one cycle runs: updates of `continual_pretraining` on failures,
    then of `fine_tuning` on successes.

    The policy's weights are passed on from phase to phase; the optimizers of the two phases start
    anew in each cycle. The paper describes CT -> SFT -> RL loops and publishes neither their
    numbers nor how data are sampled, so `every` and `num_updates` have no default.
    """

    rl: PolicyGradientConfig  # `actor_critic.ui_tars_2(...)`
    every: int
    num_updates: tuple[int, int]  # of continual pretraining and of fine-tuning, per cycle
    continual_pretraining: PolicyGradientConfig = field(default_factory=maximum_likelihood)
    fine_tuning: PolicyGradientConfig = field(default_factory=maximum_likelihood)
    batch: int = 64  # episodes per update, of all processes
    # a predicate on a generative outcome model may replace the environment's outcome
    failure_buffer: FilteredBuffer = field(default_factory=lambda: FilteredBuffer(4096, has_failed))
    success_buffer: FilteredBuffer = field(default_factory=lambda: FilteredBuffer(4096, succeeded))

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Flywheel":
        return Flywheel(self, policy, mesh, steps)


class Flywheel(Algorithm):
    """Implements `Algorithm`."""

    def __init__(self, config: FlywheelConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)  # the buffers belong to this algorithm
        if min(c.every, c.batch) < 1 or min(c.num_updates) < 0:
            raise UserError("a flywheel needs every and batch >= 1, and num_updates >= 0")
        self._rl = c.rl.build(policy, mesh, steps)
        self._phases = [
            update.build(policy, mesh, max(n, 1))
            for update, n in zip((c.continual_pretraining, c.fine_tuning), c.num_updates)
        ]
        self._steps, self._key, self._seed = 0, jax.random.key(0), 0
        self._process_group = ProcessGroup()

    def init(self, key: Array, params: Params) -> TrainState:
        self._key, self._seed = key, int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        return self._rl.init(key, params)

    def training_of(
        self, trajectories: Sequence[Trajectory]
    ) -> Sequence[TrajectoryTraining | None]:
        return self._rl.training_of(trajectories)

    def host_state(self) -> Any:
        states = [buffer.state() for buffer in self._buffers]
        return {
            "steps": self._steps,
            "play": self._rl.host_state(),
            "pools": self._process_group.all_gather("flywheel", states),
        }

    def load_host_state(self, state: Any) -> None:
        """A process that did not exist when the checkpoint was written takes the last one's."""
        self._steps = state["steps"]
        self._rl.load_host_state(state["play"])
        buffer_states = state["pools"][min(jax.process_index(), len(state["pools"]) - 1)]
        for buffer, buffer_state in zip(self._buffers, buffer_states):
            buffer.load(buffer_state)

    @property
    def _buffers(self) -> tuple[FilteredBuffer, FilteredBuffer]:
        return self._config.failure_buffer, self._config.success_buffer

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        c, process_group = self._config, runtime.process_group
        self._steps, self._process_group = self._steps + 1, process_group
        state, metrics = self._rl.step(state, experience, runtime)
        for buffer in self._buffers:
            buffer.add(experience)
        sizes = process_group.all_gather("flywheel", [len(buffer) for buffer in self._buffers])
        stored = np.sum(sizes, axis=0).tolist()
        metrics |= {"flywheel/failed": float(stored[0]), "flywheel/passed": float(stored[1])}
        if self._steps % c.every == 0:
            params = state.params
            for phase, name in enumerate(PHASE_NAMES):
                if stored[phase] and c.num_updates[phase]:
                    params, loss = self._run_phase(phase, params, runtime)
                    metrics[f"flywheel/{name}_loss"] = loss
            state = dataclasses.replace(state, params=params)
        return state, metrics | {"flywheel/turns": float(self._steps // c.every)}

    def _run_phase(self, phase: int, params: Params, runtime: Runtime) -> tuple[Params, float]:
        """The weights after a phase, and its last loss."""
        c, process_group = self._config, runtime.process_group
        update, buffer = self._phases[phase], self._buffers[phase]
        rng = np.random.default_rng([self._seed, self._steps, phase, process_group.index])
        state = update.init(jax.random.fold_in(self._key, self._steps), params)
        last: dict[str, Any] = {}
        for _ in range(c.num_updates[phase]):
            episodes = buffer.sample(len(process_group.local_items(range(c.batch))), rng)
            if phase == 0:
                episodes = [as_pretraining_text(episode) for episode in episodes]
            groups = [Group(episode.task, (episode,)) for episode in episodes]
            state, metrics = update.step(state, groups, runtime)
            last = metrics["device"][-1] if metrics["device"] else last
        return state.params, float(last.get("loss", 0.0))
