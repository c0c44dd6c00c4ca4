"""`Algorithm`: how experience changes the weights."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.learner import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.runtime import Runtime
from agentrl_jax.trajectories import Group


@runtime_checkable
class Algorithm(Protocol):
    """A host object around jitted, donated updates. What it keeps on the host joins every checkpoint."""

    def init(self, key: Array, params: Params) -> TrainState:
        """The first state; copies `params`."""
        ...

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        """One step; it may sample, score and publish through the runtime. Metrics may still be on the device."""
        ...

    def host_state(self) -> Any:
        """Plain JSON data: histories, populations, replay."""
        ...

    def load_host_state(self, state: Any) -> None: ...


@runtime_checkable
class Acting(Protocol):
    """An algorithm that has a part in what the policy says, say by choosing among what it samples."""

    def act(self, state: TrainState, runtime: Runtime) -> None:
        """Told before a phase's first rollouts, at its start and wherever it goes on."""
        ...


@runtime_checkable
class AlgorithmConfig(Protocol):
    """A dataclass of settings and slots that builds its algorithm."""

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> Algorithm: ...
