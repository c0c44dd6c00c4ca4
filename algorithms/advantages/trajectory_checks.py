"""Faults of trajectories and turns: predicates that masks, filters and rewards share."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.trajectories import Trajectory, Turn

TrajectoryPredicate = Callable[[Trajectory], bool]

_CODE = re.compile(r"```(?:python|py)[^\S\n]*\n(.*?)```", re.DOTALL)
_BOXED = re.compile(r"\\boxed\s*\{")


def is_void_text(text: str) -> bool:
    """Whether a text has neither a complete, nonempty ```python block nor a final answer in
    \\boxed{...}.
    """
    return not any(code.strip() for code in _CODE.findall(text)) and not any(
        _brace_is_closed(text, m.end()) for m in _BOXED.finditer(text)
    )


def _brace_is_closed(text: str, start: int) -> bool:
    """Whether the brace opened before `start` is closed."""
    depth = 1
    for letter in text[start:]:
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return True
    return False


def is_illegal(turn: Turn) -> bool:
    """The environment refused the action."""
    return not turn.info.get("legal", True)


def is_malformed(turn: Turn) -> bool:
    """The action was not in the requested form."""
    return not turn.info.get("formatted", True)


def is_void_turn(turn: Turn) -> bool:
    """Neither tool code nor an answer: `info["void"]`, or else `is_void_text` (SimpleTIR, arXiv
    2509.02479).
    """
    return bool(turn.info["void"]) if "void" in turn.info else is_void_text(turn.action.full_text)


def has_void_turn(trajectory: Trajectory) -> bool:
    """A turn is void."""
    return any(map(is_void_turn, trajectory.turns))


def is_overlong(trajectory: Trajectory) -> bool:
    """Truncated by a limit on its turns, tokens or context, and not ended by the environment."""
    return trajectory.stop_reason in ("turns", "tokens", "context")


@dataclass
class RepetitionCheck:
    """A turn repeats itself: of its word n-grams, more than `max_fraction` have occurred before in
    it.
    """

    ngram_size: int
    max_fraction: float

    def __call__(self, trajectory: Trajectory) -> bool:
        return any(
            self._repeated_fraction(turn.action.full_text.split()) > self.max_fraction
            for turn in trajectory.turns
        )

    def _repeated_fraction(self, words: Sequence[str]) -> float:
        n = self.ngram_size
        ngrams = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        total = sum(ngrams.values())
        return 1.0 - len(ngrams) / total if total else 0.0


@dataclass
class UnreadableTextCheck:
    """More than `max_fraction` of a turn's characters are unreadable: not decoded, or control
    characters.
    """

    max_fraction: float

    def __call__(self, trajectory: Trajectory) -> bool:
        return any(
            self._unreadable_fraction(turn.action.full_text) > self.max_fraction
            for turn in trajectory.turns
        )

    @staticmethod
    def _unreadable_fraction(text: str) -> float:
        unreadable = sum(
            letter == "�" or not (letter.isprintable() or letter.isspace()) for letter in text
        )
        return unreadable / len(text) if text else 0.0
