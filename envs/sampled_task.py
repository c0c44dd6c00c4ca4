"""`SampledTaskEnvironment`: one task sampled per episode, then one answer per action."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.environment import Messages
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import check_no_options
from agentrl_jax.messages import Message, user


@dataclass(frozen=True)
class StepResult:
    """The answer to one action."""

    observation: str  # without its final line feed
    rewards: Mapping[str, float]  # its components; the reward is their sum
    info: Mapping[str, Any]  # fields added to the turn's info
    success: bool | None = None  # None: the episode continues


def rng_of_task(rng: np.random.Generator, num_tasks: int) -> np.random.Generator:
    """A generator that depends only on which of so many tasks is drawn."""
    return type(rng)(type(rng.bit_generator)(int(rng.integers(num_tasks))))


class SampledTaskEnvironment(Forkable):
    """An environment that samples a task at `reset` and has no reset options.

    Subclasses define `_sample_task`, `_reset_state`, `_opening_text` and `_respond`.

    White space around an action is ignored. An episode that has not ended after `horizon` turns is
    truncated, without success. `info["full_score"]` is the largest possible return of an episode.
    """

    reward_bounds: tuple[float, float] = (0.0, 1.0)
    full_score: float = 1.0
    horizon: int
    turns: int = 0  # so far

    def _sample_task(self) -> None:
        """Sample the task of the episode, from `np_random` alone."""
        raise NotImplementedError(f"{type(self).__name__} must define _sample_task")

    def _reset_state(self) -> None:
        """Set the initial state of the sampled task."""
        raise NotImplementedError(f"{type(self).__name__} must define _reset_state")

    def _opening_text(self) -> str:
        """The opening observation, without its final line feed."""
        raise NotImplementedError(f"{type(self).__name__} must define _opening_text")

    def _respond(self, text: str) -> StepResult:
        """The answer to one action, which also changes the state."""
        raise NotImplementedError(f"{type(self).__name__} must define _respond")

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options(type(self).__name__, options)
        self._sample_task()
        self._rewind()
        return (self._opening_message(),), {}

    def _opening_message(self) -> Message:
        """The opening observation."""
        return user(self._opening_text() + "\n")

    def _rewind(self) -> None:
        self.turns = 0
        self._reset_state()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        reply = self._respond(text.strip())
        over = reply.success is not None
        cut = not over and self.turns == self.horizon
        info = {"rewards": dict(reply.rewards), "full_score": self.full_score, **reply.info}
        if over or cut:
            info["success"] = bool(reply.success)
        return (user(reply.observation + "\n"),), sum(reply.rewards.values()), over, cut, info
