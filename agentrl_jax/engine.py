"""`Engine`: whatever turns prompts into calls."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, Key, Sampling


@dataclass(frozen=True, eq=False)
class Image:
    """What stands in a prompt for the placeholder tokens from position `start` on."""

    start: int
    embeddings: np.ndarray  # float32 [placeholders, D]


class Generation(Future[Call]):
    """The future of a call whose engine tells how far it is, and ends it early where nobody waits for it any more."""

    heard: Callable[[list[int]], None] | None = None  # told now and then, in the engine's thread, of all tokens so far
    unwanted = False

    def cancel(self) -> bool:
        """As of any future; a call that is already at work, which cannot be cancelled, ends at the engine's next pause."""
        cancelled = super().cancel()
        self.unwanted = not cancelled
        return cancelled


@runtime_checkable
class Engine(Protocol):
    """Samples calls; requests are independent and may finish in any order."""

    @property
    def places(self) -> int:
        """How many episodes it keeps in memory at once; more would lose what is cached of them between their turns."""
        ...

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        """Sample after the full prompt `ids`. `parent` is only a hint that its keys and values may still be cached."""
        ...

    def release(self, call: Call) -> None:
        """Nothing will extend this call: its cache may go."""
        ...

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """Copy new weights; every token is tagged with the version that sampled it.

        Calls in flight go on under them. What is cached of older weights is kept, or with `recompute` made anew.
        """
        ...

    def close(self) -> None: ...
