"""`Probe`: a world that is drawn once and then answers turn by turn until it is over or its horizon comes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl_jax.environment import Messages
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user


@dataclass(frozen=True)
class Reply:
    """What a world says to one action."""

    text: str  # without its line feed
    rewards: Mapping[str, float]  # the named parts; the reward is their sum
    facts: Mapping[str, Any]  # of this turn's info
    success: bool | None = None  # None: the episode goes on


class Probe(Rewindable):
    """Subclasses define `_draw`, `_begin`, `_question` and `_reply`; they have no reset option.

    White space around an action is ignored. The turn that makes `horizon` turns without an end truncates the episode, without
    success. `info["full_score"]` is the most that an episode's rewards may sum to.
    """

    reward_bounds: tuple[float, float] = (0.0, 1.0)
    full_score: float = 1.0
    horizon: int
    turns: int = 0  # played so far

    def _draw(self) -> None:
        """Draw the episode's task, from `np_random` alone."""
        raise NotImplementedError(f"{type(self).__name__} must define _draw")

    def _begin(self) -> None:
        """Go to the first state of the task that was drawn."""
        raise NotImplementedError(f"{type(self).__name__} must define _begin")

    def _question(self) -> str:
        """The opening, without its last line feed."""
        raise NotImplementedError(f"{type(self).__name__} must define _question")

    def _reply(self, text: str) -> Reply:
        """Answer one action."""
        raise NotImplementedError(f"{type(self).__name__} must define _reply")

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if options:
            raise UserError(f"{type(self).__name__} has no reset option {sorted(options)}: it has none")
        self._draw()
        self._rewind()
        return (user(self._question() + "\n"),), {}

    def _rewind(self) -> None:
        self.turns = 0
        self._begin()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        reply = self._reply(text.strip())
        over = reply.success is not None
        cut = not over and self.turns == self.horizon
        info = {"rewards": dict(reply.rewards), "full_score": self.full_score, **reply.facts}
        if over or cut:
            info["success"] = bool(reply.success)
        return (user(reply.text + "\n"),), sum(reply.rewards.values()), over, cut, info


def whole(name: str, value: Any, low: int, high: int) -> int:
    """An option's value; raises UserError where it is no whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return value


def amount(name: str, value: Any) -> float:
    """An option's value; raises UserError where it is no number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UserError(f"{name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """An option's value; raises UserError where it is neither True nor False."""
    if not isinstance(value, bool):
        raise UserError(f"{name} must be True or False, not {value!r}")
    return value
