"""When each row of an engine waited, prefilled, decoded, and waited for an environment."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentrl_jax.viewer.episode_summary import number

KINDS = ("waiting", "prefill", "decode", "environment")
_CLOCK = ("submitted", "admitted", "prefilled", "finished")


class Interval(NamedTuple):
    """Seconds since the Unix epoch in which a row was busy with a turn of an episode."""

    row: str
    kind: str
    start: float
    end: float
    episode_id: str
    turn: int


@dataclass(frozen=True)
class Timeline:
    """The intervals of a step; `unmeasured` calls have no times."""

    intervals: tuple[Interval, ...]
    unmeasured: int

    def to_json(self) -> dict[str, Any]:
        """Numbers instead of names, and seconds from the first interval's start."""
        rows = sorted({x.row for x in self.intervals}, key=_natural)
        episodes = sorted({x.episode_id for x in self.intervals})
        row_of = {row: i for i, row in enumerate(rows)}
        episode_of = {name: i for i, name in enumerate(episodes)}
        start = min((x.start for x in self.intervals), default=0.0)
        return {
            "rows": rows,
            "kinds": KINDS,
            "episodes": episodes,
            "start": start,
            "unmeasured": self.unmeasured,
            "intervals": [
                [
                    row_of[x.row],
                    KINDS.index(x.kind),
                    round(x.start - start, 6),
                    round(x.end - start, 6),
                    episode_of[x.episode_id],
                    x.turn,
                ]
                for x in self.intervals
            ],
        }


def step_timeline(trajectories: Iterable[tuple[str, Mapping[str, Any]]]) -> Timeline:
    """The timeline of (episode id, JSON data of its trajectory)."""
    intervals: list[Interval] = []
    unmeasured = 0
    for episode_id, data in trajectories:
        for i, turn in enumerate(data["turns"]):
            measured = list(_turn_intervals(episode_id, i, turn))
            intervals += measured
            unmeasured += sum(1 for call in turn["calls"] if not call.get("time"))
    return Timeline(tuple(sorted(intervals, key=lambda x: (x.start, x.row))), unmeasured)


def _turn_intervals(episode_id: str, index: int, turn: Mapping[str, Any]) -> Iterator[Interval]:
    row = f"{episode_id}, no row"
    for call in turn["calls"]:
        time = call.get("time") or {}
        row = _row_name(episode_id, time) if time else row
        clock = [number(time.get(key)) for key in _CLOCK]
        for kind, start, end in zip(KINDS, clock, clock[1:]):
            if _is_interval(start, end):
                yield Interval(row, kind, start, end, episode_id, index)
    start, end = (turn.get("time") or {}).get("environment") or (None, None)
    if _is_interval(number(start), number(end)):
        yield Interval(row, KINDS[-1], number(start), number(end), episode_id, index)


def _row_name(episode_id: str, time: Mapping[str, Any]) -> str:
    process, slot = episode_id.partition("-")[0], number(time.get("slot"))
    if math.isfinite(slot):
        return f"process {process}, slot {int(slot)}"
    return f"{episode_id}, no row"


def _is_interval(start: float, end: float) -> bool:
    return math.isfinite(start) and math.isfinite(end) and end >= start


def _natural(name: str) -> list[tuple[int, str]]:
    """Orders "slot 10" after "slot 9"."""
    words = name.replace(",", " ").split()
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in words]
