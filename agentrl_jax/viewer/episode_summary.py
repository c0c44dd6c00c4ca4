"""What the list of episodes shows of one line of the trajectory log.

Most of a line are arrays of numbers, and the list needs no more than their lengths, so a line is
parsed with each array of numbers but the weights replaced by its length: less than half the time.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentrl_jax.storage.line_checksum import without_checksum
from agentrl_jax.storage.trajectory_log import SCHEMA

_NUMBERS = re.compile(rb'(?<!"weight": )(?<!"environment": )\[[-0-9][-+0-9.eE, ]*\]')
MAX_TEXT = 500  # characters of a task's name or an error that the list keeps


class EpisodeSummary(NamedTuple):
    """The fields by which episodes are filtered and sorted; a number that is absent is NaN.

    `damage` says why a line is no trajectory; its other fields are then empty.
    """

    step: float = math.nan
    group: float = math.nan
    sample: float = math.nan
    seat: float = math.nan
    total_reward: float = math.nan  # the undiscounted return
    turns: float = math.nan
    tokens: float = math.nan  # of all actions
    trained: float = math.nan  # tokens with a weight in the loss
    seconds: float = math.nan  # from the first submission to the last measured end
    success: float = math.nan  # 1, 0, or NaN where the environment does not report it
    phase: str = ""
    task: str = ""
    agent: str = ""
    stop_reason: str = ""
    error: str = ""
    damage: str = ""


NUMBERS = tuple(name for name, kind in EpisodeSummary.__annotations__.items() if kind is float)
TEXTS = tuple(name for name, kind in EpisodeSummary.__annotations__.items() if kind is str)


def summarize_line(line: bytes) -> EpisodeSummary:
    """The summary of one line; one that is damaged or of another schema has `damage`."""
    try:
        return summarize(parse_line(without_arrays(without_checksum(line))))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        return EpisodeSummary(
            damage=f"not a trajectory: {type(error).__name__}: {error}"[:MAX_TEXT]
        )


def without_arrays(line: bytes) -> bytes:
    """The line with a length for each array of numbers of its turns, but weights and times."""
    head, key, turns = line.partition(b'"turns": [')
    return head + key + _NUMBERS.sub(_length, turns)


def _length(match: re.Match[bytes]) -> bytes:
    """[1, 2, 3] -> 3"""
    return b"%d" % (match.group().count(b",") + 1)


def parse_line(line: bytes) -> dict[str, Any]:
    """The object of a line.

    Raises:
        ValueError: it is no JSON object, of another schema, or not as it was written.
    """
    try:
        data = json.loads(without_checksum(line))
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError(f"an object was expected, not {type(data).__name__}")
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema {str(data.get('schema'))[:40]!r} is not {SCHEMA}")
    return data


def summarize(data: Mapping[str, Any]) -> EpisodeSummary:
    """The summary of a trajectory's JSON data, in which a length may stand for an array.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: turns or calls have another form.
    """
    turns = data["turns"]
    calls = [call for turn in turns for call in turn["calls"]]
    success = data.get("success")
    return EpisodeSummary(
        step=number(data.get("step")),
        group=number(data.get("group")),
        sample=number(data.get("sample")),
        seat=number(data.get("seat")),
        total_reward=number(data.get("return")),
        turns=len(turns),
        tokens=sum(_count(call["action"]) for call in calls),
        trained=_trained_tokens(calls),
        seconds=_duration(turns, calls),
        success=float(success) if isinstance(success, bool) else math.nan,
        phase=_text(data.get("phase")),
        task=_text(data.get("task")),
        agent=_text(data.get("agent")),
        stop_reason=_text(data.get("stop_reason")),
        error=_text(data.get("error")),
    )


def _count(x: Sequence[Any] | int) -> int:
    return x if isinstance(x, int) else len(x)


def number(x: Any) -> float:
    """A JSON number, or {"$float": "nan"}; NaN for anything else."""
    if isinstance(x, dict):
        x = x.get("$float")
        return float(x) if x in ("nan", "inf", "-inf") else math.nan
    return float(x) if isinstance(x, int | float) and not isinstance(x, bool) else math.nan


def _text(x: Any) -> str:
    if x is None:
        return ""
    return (x if isinstance(x, str) else json.dumps(x))[:MAX_TEXT]


def _trained_tokens(calls: Sequence[Mapping[str, Any]]) -> float:
    """Tokens with a weight other than 0; NaN where no call was given to an algorithm."""
    weights = [call["training"].get("weight", ()) for call in calls if call.get("training")]
    return sum(weight != 0 for row in weights for weight in row) if weights else math.nan


def _duration(turns: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]) -> float:
    """Seconds from the first measured moment to the last; NaN where none was measured."""
    moments = [
        number(call["time"].get(key))
        for call in calls
        if call.get("time")
        for key in ("submitted", "finished")
    ]
    for turn in turns:
        moments += map(number, (turn.get("time") or {}).get("environment", ()))
    finite = [moment for moment in moments if math.isfinite(moment)]
    return max(finite) - min(finite) if finite else math.nan
