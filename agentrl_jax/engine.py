"""`Engine`: the sampler of calls. `Scorer`: the score of a text that is given."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

import numpy as np

from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, RandomKey, Sampling


class GenerationFuture(Future[Call]):
    """The future of a call whose engine reports progress and can end the generation early."""

    # A callback that gets all tokens so far, now and then, in the engine's thread.
    on_tokens: Callable[[list[int]], None] | None = None
    cancel_requested = False

    def cancel(self) -> bool:
        """As `Future.cancel`; a running call cannot be cancelled, but the engine ends it soon."""
        cancelled = super().cancel()
        self.cancel_requested = not cancelled
        return cancelled


@runtime_checkable
class Engine(Protocol):
    """Samples calls; requests are independent and may finish in any order."""

    @property
    def num_slots(self) -> int:
        """How many episodes keep their KV cache between turns; more would evict each other's."""
        ...

    @property
    def positions(self) -> int:
        """The most tokens of a prompt and its completion."""
        ...

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        """Sample a continuation of a prompt.

        Args:
            ids: the full prompt, int32 [tokens].
            sampling: the parameters of this call.
            key: identifies the call's random numbers.
            parent: a call that this prompt extends; only a hint that its KV cache may be reused.
            images: what the placeholder tokens of the prompt stand for, in order.
        """
        ...

    def release(self, call: Call) -> None:
        """Declare that no prompt will extend this call: its KV cache may be freed."""
        ...

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """Copy new weights; every token is tagged with the version that sampled it.

        Calls in flight continue under them. KV caches of older weights are kept, or recomputed with
        `recompute`.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class BatchEngine(Protocol):
    """What an engine is, too, that can sample many calls outside of episodes at once."""

    def samples_batches(self, sampling: Sampling) -> bool:
        """Whether it does, with these parameters."""
        ...

    def sample_batch(
        self, prompts: Sequence[np.ndarray], n: int, sampling: Sampling, key: RandomKey
    ) -> list[list[Call]]:
        """`n` calls for every prompt, with the newest weights: those that `submit` gives for the
        keys (*key, prompt, call).
        """
        ...


@runtime_checkable
class WeightHolder(Protocol):
    """What an engine is, too, where the weights it samples with are on this machine's devices."""

    def weights_in_use(self) -> Sequence[tuple[int, Params]]:
        """The version of the weights that sample now, and the weights, of each of its engines."""
        ...


@runtime_checkable
class ProgramRunner(Protocol):
    """What an engine is, too, whose programs run on this machine's devices."""

    def wait_until_idle(self) -> None:
        """Return once no call is queued or in progress, cancelled ones included, and no program
        runs.
        """
        ...


@runtime_checkable
class Scorer(Protocol):
    """Scores texts that are given; requests are independent and may finish in any order."""

    def submit(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
        """A language model's log-prob of the scored tokens, each given all before it, or a reward
        model's score of the whole text.

        Args:
            tokens: int32 [tokens].
            is_scored: bool [tokens]; never the first one.
        """
        ...

    def close(self) -> None: ...
