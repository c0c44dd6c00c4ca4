"""`Engine`: whatever turns prompts into calls."""

from concurrent.futures import Future
from typing import Protocol, runtime_checkable

import numpy as np

from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, Key, Sampling


@runtime_checkable
class Engine(Protocol):
    """Samples calls; requests are independent and may finish in any order."""

    @property
    def rows(self) -> int:
        """How many calls it works on at once."""
        ...

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None) -> "Future[Call]":
        """Sample after the full prompt `ids`. `parent` is only a hint that its keys and values may still be cached."""
        ...

    def release(self, call: Call) -> None:
        """Nothing will extend this call: its cache may go."""
        ...

    def publish(self, params: Params, version: int) -> None:
        """Copy new weights; calls in flight go on under them, each token tagged with the version that sampled it."""
        ...

    def close(self) -> None: ...
