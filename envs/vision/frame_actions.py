"""FrameThinker's turns, the consistency that its reward demands, and variants of that reward."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

_TURN = re.compile(
    r"\s*<think>((?:(?!</?(?:think|action)>).)*)</think>\s*"
    r"<action>((?:(?!</?(?:think|action)>).)*)</action>\s*",
    re.DOTALL,
)
_CHOOSE = re.compile(r"choose frames between (-?\d{1,9}) and (-?\d{1,9})", re.IGNORECASE)
_TIME = re.compile(r"get frame number at time (\d{1,4}):([0-5]\d)", re.IGNORECASE)
_ANSWER = re.compile(r"output answer:\s*(.+)", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"\d+")
FORMS = (
    "<think>...</think> and then <action>choose frames between S and E</action>, <action>get frame "
    "number at time MM:SS</action> or <action>output answer: X</action>"
)


@dataclass(frozen=True)
class FrameAction:
    """An action of a turn.

    Args:
        kind: choose frames, ask for the frame of a time, answer, or none that can be read.
        numbers: the range that is chosen, or the time in seconds.
        thought_numbers: the numbers of the thought, in order.
        answer: that is given.
        frame: that the environment returned for a time.
    """

    kind: Literal["choose", "time", "answer", "none"]
    numbers: tuple[int, ...] = ()
    thought_numbers: tuple[int, ...] = ()
    answer: str = ""
    frame: int | None = None


def read_action(text: str) -> FrameAction:
    """The action of a turn, "none" where it is not one thought and one action."""
    turn = _TURN.fullmatch(text[:20_000])
    if turn is None:
        return FrameAction("none")
    thought = tuple(int(number[:9]) for number in _NUMBER.findall(turn[1]))
    body = turn[2].strip()
    if match := _CHOOSE.fullmatch(body):
        return FrameAction("choose", (int(match[1]), int(match[2])), thought)
    if match := _TIME.fullmatch(body):
        return FrameAction("time", (60 * int(match[1]) + int(match[2]),), thought)
    if match := _ANSWER.fullmatch(body):
        return FrameAction("answer", (), thought, match[1].strip())
    return FrameAction("none")


def inconsistency(actions: Sequence[FrameAction], frames: int) -> str:
    """The first of the faults for which FrameThinker's reward is 0; empty: none.

    "form": a turn is not one thought and one action; "thought": the last two numbers of a thought
    are not the range that is chosen; "outside": a range is empty or not within the video;
    "repeated range": both ends are within 1 of an earlier range's; "repeated time"; "unused time":
    the action after a time is not a choice of frames; "wrong range": that choice does not hold the
    frame that was returned.
    """
    ranges: list[tuple[int, ...]] = []
    times: list[tuple[int, ...]] = []
    for action, after in zip(actions, [*actions[1:], None]):
        if action.kind == "none":
            return "form"
        if action.kind == "choose":
            start, end = action.numbers
            if action.thought_numbers[-2:] != action.numbers:
                return "thought"
            if not 0 <= start < end < frames:
                return "outside"
            if any(abs(start - s) <= 1 and abs(end - e) <= 1 for s, e in ranges):
                return "repeated range"
            ranges.append(action.numbers)
        if action.kind == "time":
            if action.numbers in times:
                return "repeated time"
            times.append(action.numbers)
            if after is None or after.kind != "choose":
                return "unused time"
            if action.frame is None or not after.numbers[0] <= action.frame <= after.numbers[1]:
                return "wrong range"
    return ""


@dataclass(frozen=True)
class FrameCounts:
    """What an episode consisted of when it ended."""

    is_right: bool
    fault: str  # of `inconsistency`
    used_time: bool
    chose_frames: bool
    names_time: bool  # the question does
    malformed_turns: int


FrameReward = Callable[[FrameCounts], dict[str, float]]


@dataclass(frozen=True)
class GatedReward:
    """0 for an inconsistent episode, else accuracy, and for a right answer a bonus for the time
    tool, where the question names a time, and one for chosen frames (arXiv 2509.24304).
    """

    time_bonus: float
    frames_bonus: float

    def __call__(self, counts: FrameCounts) -> dict[str, float]:
        counted = counts.is_right and not counts.fault
        return {
            "outcome": float(counted),
            "action": counted * self.time_bonus * (counts.used_time and counts.names_time)
            + counted * self.frames_bonus * counts.chose_frames,
        }


def outcome(counts: FrameCounts) -> dict[str, float]:
    """1 for a right answer, consistent or not."""
    return {"outcome": float(counts.is_right)}


def unconditional(counts: FrameCounts) -> dict[str, float]:
    """Accuracy, and the released bonuses of actions for wrong answers too: the paper reports that
    the policy then collapses to one mode.
    """
    bonus = 0.5 * (counts.used_time and counts.names_time) + 0.02 * counts.chose_frames
    return {"outcome": float(counts.is_right), "action": bonus}


def formatted(counts: FrameCounts) -> dict[str, float]:
    """Accuracy, and .5 where no turn is malformed: the paper reports that a reward of the format
    suppresses exploration; its size is not published.
    """
    return {
        "outcome": float(counts.is_right),
        "format": 0.5 * (counts.malformed_turns == 0),
    }


# name -> (parts of an episode, bounds of their sum)
FRAME_REWARDS: dict[str, tuple[FrameReward, tuple[float, float]]] = {
    "released": (GatedReward(0.5, 0.02), (0.0, 1.52)),
    "paper": (GatedReward(0.2, 0.0), (0.0, 1.2)),
    "outcome": (outcome, (0.0, 1.0)),
    "unconditional": (unconditional, (0.0, 1.52)),
    "format": (formatted, (0.0, 1.5)),
}
