"""`Algorithm`: how experience changes the weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.distributed.sharding import replicated_sharding
from agentrl_jax.learner.data_shards import put_sharded
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.trajectory_record import TrajectoryTraining


class Algorithm:
    """A host object around jitted, donated updates; its host state is part of every checkpoint."""

    def init(self, key: Array, params: Params) -> TrainState:
        """The first state; copies `params`."""
        raise NotImplementedError

    def begin_phase(self, state: TrainState, runtime: Runtime) -> None:
        """Called before the first rollouts of a phase, at its start and after each resumption."""

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        """One training step.

        Args:
            state: is donated.
            experience: this process's groups.
            runtime: to sample, score and publish weights in the middle of a step.

        Returns:
            The next state, and metrics, which may still be on the device.
        """
        raise NotImplementedError

    def training_of(
        self, trajectories: Sequence[Trajectory]
    ) -> Sequence[TrajectoryTraining | None]:
        """What the last step used of each trajectory, for the trajectory log; None where it was
        not given the trajectory, or keeps no account.
        """
        return [None] * len(trajectories)

    def host_state(self) -> Any:
        """Plain JSON data for a checkpoint: histories, populations, replay buffers."""
        return None

    def load_host_state(self, state: Any) -> None:
        """Restore what `host_state` returned."""


@runtime_checkable
class AlgorithmConfig(Protocol):
    """A dataclass of settings that builds its algorithm."""

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> Algorithm: ...


@dataclass
class PerAgent:
    """An algorithm for each of the agents that a phase trains, on that agent's trajectories; in
    place of a single one as `Phase.algorithm`.
    """

    algorithms: dict[str, AlgorithmConfig]


class OtherModelConfig:
    """The base of `AlgorithmConfig`s that train another model than an agent's policy, such as a
    reward model: their phase has checkpoints, but no engine samples with its weights, and it is
    not evaluated.
    """


@dataclass
class Unchanged:
    """An `AlgorithmConfig` that leaves the weights as they are: what `Phase.start` gives is the
    phase's result.
    """

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "UnchangedWeights":
        return UnchangedWeights(mesh)


@dataclass(frozen=True)
class UnchangedWeights(Algorithm):
    """Implements `Algorithm`."""

    mesh: Mesh

    def init(self, key: Array, params: Params) -> TrainState:
        replicated = replicated_sharding(self.mesh)
        return TrainState(
            step=put_sharded(jnp.int32(0), replicated),
            params=params,
            opt_state=(),
            key=put_sharded(key, replicated),
        )

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        return state, {}
