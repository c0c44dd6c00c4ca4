"""CodeVision's reward: accuracy, needed operations, and penalties against needless ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_jax.envs.vision.image_operations import CORE, TURNS

MIN_CALLS = 2  # calls that are never penalized


@dataclass(frozen=True)
class TransformCounts:
    """What an episode consisted of when it ended.

    Args:
        is_right: the answer.
        is_formatted: every turn has a thought and a call, or a thought and the answer.
        needed: operations; those that undo the corruption, and "crop".
        used: operations of calls that succeeded, in order.
        crop_iou: the best overlap of a crop with the region that matters.
        calls: of tools.
    """

    is_right: bool
    is_formatted: bool
    needed: Sequence[str]
    used: Sequence[str]
    crop_iou: float
    calls: int


def mandatory_share(counts: TransformCounts) -> float:
    """(needed rotations and flips that were used + crop_iou where a crop is needed) / needed, at
    most 1; 1 where nothing is needed (our reading).
    """
    if not counts.needed:
        return 1.0
    turns = [name for name in counts.needed if name != "crop"]
    credit = sum(name in counts.used for name in turns)
    credit += counts.crop_iou * ("crop" in counts.needed)
    return min(1.0, credit / len(counts.needed))


def outcome(counts: TransformCounts) -> dict[str, float]:
    """1 for a right answer."""
    return {"outcome": float(counts.is_right)}


def process(counts: TransformCounts) -> dict[str, float]:
    """Accuracy + .1 format + the needed share + .1 where exactly the needed operations were used +
    .2 for a right answer with an operation of another kind, without penalties.

    Where a crop is needed and the share is under .1, accuracy is multiplied by the share.
    """
    mandatory = mandatory_share(counts)
    accuracy = float(counts.is_right)
    if "crop" in counts.needed and mandatory < 0.1:
        accuracy *= mandatory
    used_core = {name for name in counts.used if name in CORE}
    emerging = any(name not in CORE for name in counts.used)
    return {
        "outcome": accuracy,
        "format": 0.1 * counts.is_formatted,
        "mandatory": mandatory,
        "exact": 0.1 * (used_core == set(counts.needed)),
        "emerging": 0.2 * (counts.is_right and emerging),
    }


def codevision(counts: TransformCounts) -> dict[str, float]:
    """CodeVision's reward (arXiv 2512.03746, its code): `process` - .5 (overuse + spurious).

    overuse = max(0, calls - max(2, needed)); spurious: the rotations and flips that were used where
    none is needed. The bonus of a tool's necessity compares a group: `ToolNecessity`.
    """
    overuse = max(0, counts.calls - max(MIN_CALLS, len(counts.needed)))
    none_needed = not any(name in TURNS for name in counts.needed)
    spurious = sum(name in TURNS for name in counts.used) if none_needed else 0
    return {**process(counts), "overuse": -0.5 * overuse, "spurious": -0.5 * spurious}


TRANSFORM_REWARDS = {"outcome": outcome, "process": process, "codevision": codevision}
PARTS = ("outcome", "format", "mandatory", "exact", "emerging", "overuse", "spurious")
LARGEST_PROCESS = 1 + 0.1 + 1 + 0.1 + 0.2
