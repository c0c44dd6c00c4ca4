"""What can be said against a trajectory: predicates that masks, filters and rewards share."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.trajectories import Trajectory, Turn

Fault = Callable[[Trajectory], bool]

_CODE = re.compile(r"```(?:python|py)[^\S\n]*\n(.*?)```", re.DOTALL)
_BOXED = re.compile(r"\\boxed\s*\{")


def writes_nothing_useful(text: str) -> bool:
    """Whether a text holds neither a complete ```python block with something in it nor a final answer in \\boxed{...}."""
    return not any(code.strip() for code in _CODE.findall(text)) and not any(_closes(text, m.end()) for m in _BOXED.finditer(text))


def _closes(text: str, start: int) -> bool:
    """Whether the brace opened before `start` is closed."""
    depth = 1
    for letter in text[start:]:
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return True
    return False


def illegal(turn: Turn) -> bool:
    """The environment refused the action."""
    return not turn.info.get("legal", True)


def malformed(turn: Turn) -> bool:
    """The action was not in the asked form."""
    return not turn.info.get("formatted", True)


def void_turn(turn: Turn) -> bool:
    """Neither a tool's code nor an answer: what `info["void"]` says, else what the text says (SimpleTIR, arXiv 2509.02479)."""
    return bool(turn.info["void"]) if "void" in turn.info else writes_nothing_useful(turn.action.text)


def void(trajectory: Trajectory) -> bool:
    """Some turn is void."""
    return any(map(void_turn, trajectory.turns))


def overlong(trajectory: Trajectory) -> bool:
    """Cut by a limit on its turns, its tokens or its context, and not ended by the world."""
    return trajectory.stop_reason in ("turns", "tokens", "context")


@dataclass
class Repetitive:
    """Some turn repeats itself: of its word sequences of `length`, more than `share` have occurred in it before."""

    length: int
    share: float

    def __call__(self, trajectory: Trajectory) -> bool:
        return any(self._repeated(turn.action.text.split()) > self.share for turn in trajectory.turns)

    def _repeated(self, words: Sequence[str]) -> float:
        spans = Counter(tuple(words[i : i + self.length]) for i in range(len(words) - self.length + 1))
        total = sum(spans.values())
        return 1.0 - len(spans) / total if total else 0.0


@dataclass
class Unreadable:
    """More than `share` of some turn's characters cannot be read: not decoded, or control characters."""

    share: float

    def __call__(self, trajectory: Trajectory) -> bool:
        return any(self._unreadable(turn.action.text) > self.share for turn in trajectory.turns)

    @staticmethod
    def _unreadable(text: str) -> float:
        bad = sum(letter == "�" or not (letter.isprintable() or letter.isspace()) for letter in text)
        return bad / len(text) if text else 0.0
