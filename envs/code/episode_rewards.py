"""Rewards of episodes with code, as named parts: the outcome alone, and those of papers."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class EpisodeCounts:
    """What an episode consisted of when it ended."""

    is_right: bool
    has_answer: bool
    calls: int  # of the tool
    failed_calls: int
    tool_turns: int
    malformed_turns: int  # without an answer and without a readable call
    silent_turns: int  # without a text beside the call or the answer


NO_COUNTS = EpisodeCounts(False, False, 0, 0, 0, 0, 0)


def has_thought(text: str) -> bool:
    """Whether words stand before the answer's marks, or beside a call."""
    return any(letter.isalpha() for letter in text.split("<")[0].split("\\")[0])


def outcome(counts: EpisodeCounts) -> dict[str, float]:
    """1 for a right answer."""
    return {"outcome": float(counts.is_right)}


def artist(counts: EpisodeCounts) -> dict[str, float]:
    """ARTIST (arXiv 2505.01441): answer 2, format .5 to 1, share of calls that succeed.

    The grades of the format are not published. Here: .5 for an answer in its tags, .25 where no
    turn was malformed, .25 where each turn has a thought; 0 without an answer.
    """
    form = 0.5 + 0.25 * (counts.malformed_turns == 0) + 0.25 * (counts.silent_turns == 0)
    share = 1 - counts.failed_calls / counts.calls if counts.calls else 0.0
    return {
        "answer": 2.0 * counts.is_right,
        "format": form * counts.has_answer,
        "tool": share,
    }


def retool(counts: EpisodeCounts) -> dict[str, float]:
    """ReTool's released reward: 1 if right, else min(-.6, -1 + .05 (n - 2)), n messages.

    A turn with a call adds two messages.
    """
    failure = min(-0.6, -1.0 + 0.05 * 2 * counts.tool_turns)
    return {"outcome": 1.0 if counts.is_right else failure}


def datamind(counts: EpisodeCounts) -> dict[str, float]:
    """DataMind (arXiv 2509.25084): 1 if right and 0 if wrong, in an episode whose every turn has
    code or an answer; else -.1.
    """
    is_formatted = counts.has_answer and counts.malformed_turns == 0
    return {
        "outcome": float(counts.is_right and is_formatted),
        "format": 0.0 if is_formatted else -0.1,
    }


# name -> (parts of an episode, bounds of their sum)
REWARDS: dict[str, tuple[Callable[[EpisodeCounts], dict[str, float]], tuple[float, float]]] = {
    "outcome": (outcome, (0.0, 1.0)),
    "artist": (artist, (0.0, 4.0)),
    "retool": (retool, (-1.0, 1.0)),
    "datamind": (datamind, (-0.1, 1.0)),
}
