"""The metrics of a run as curves of at most so many points."""

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from agentrl_jax.storage.line_checksum import without_checksum
from agentrl_jax.viewer.episode_summary import number
from agentrl_jax.viewer.growing_file import GrowingFile

MAX_POINTS = 600


class Curve(NamedTuple):
    """One metric of one phase; a point is the mean of the steps that it stands for."""

    steps: list[float]
    values: list[float]


class MetricsFile:
    """`metrics.jsonl`, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._points: dict[tuple[str, str], Curve] = {}
        self.num_damaged = 0  # lines that are left out

    def refresh(self) -> None:
        """Read what was written since the last time; damaged lines are counted and left out."""
        if self._file.was_replaced():
            self._points, self.num_damaged = {}, 0
        for _, line in self._file.new_lines():
            try:
                self._add(json.loads(without_checksum(line)))
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                self.num_damaged += 1

    def _add(self, data: dict[str, Any]) -> None:
        step = number(data.get("step"))
        if not math.isfinite(step):
            raise ValueError("no step")
        for name, value in data.items():
            y = number(value)
            if name not in ("phase", "step") and math.isfinite(y):
                key = (str(data.get("phase", "")), name)
                curve = self._points.setdefault(key, Curve([], []))
                curve.steps.append(step)
                curve.values.append(y)

    def to_json(self) -> dict[str, Any]:
        """{phase: {metric: {"steps": [...], "values": [...]}}}"""
        phases: dict[str, dict[str, Any]] = defaultdict(dict)
        for (phase, name), curve in list(self._points.items()):
            count = len(curve.values)  # another thread may append
            phases[phase][name] = downsample(
                Curve(curve.steps[:count], curve.values[:count])
            )._asdict()
        return dict(phases)


def downsample(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """Means of as many equal runs of points: [1, 2, 3, 4] to two points -> [1.5, 3.5]."""
    size = -(-len(curve.values) // max_points)
    if size <= 1:
        return curve
    return Curve(_means(curve.steps, size), _means(curve.values, size))


def _means(x: list[float], size: int) -> list[float]:
    parts = [x[i : i + size] for i in range(0, len(x), size)]
    return [sum(part) / len(part) for part in parts]
