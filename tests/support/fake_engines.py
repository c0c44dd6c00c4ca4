"""`FakeEngine`: the base of engines in tests that need no model."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from agentrl_jax.engine import PromptImage
from agentrl_jax.trajectories import Call, RandomKey, Sampling


class FakeEngine:
    """Implements `Engine` without a model: subclasses define `submit`; the rest does nothing."""

    num_slots = 8
    positions = 100_000

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        raise NotImplementedError

    def release(self, call: Call) -> None: ...

    def publish(self, params: Any, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...
