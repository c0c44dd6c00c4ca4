"""`RunView`: everything that the page shows of one run folder."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.storage.image_store import FOLDER as IMAGE_FOLDER
from agentrl_jax.storage.image_store import ImageStore
from agentrl_jax.storage.trajectory_log import FOLDER
from agentrl_jax.viewer.curves import MetricsFile
from agentrl_jax.viewer.episode_index import EpisodeIndex, EpisodeTable
from agentrl_jax.viewer.episode_query import EpisodeQuery, select, window
from agentrl_jax.viewer.episode_summary import TEXTS, EpisodeSummary, parse_line
from agentrl_jax.viewer.timeline import step_timeline
from agentrl_jax.viewer.token_decoder import TokenDecoder

METRICS = "metrics.jsonl"
SINGLE_FILE = "trajectories.jsonl"  # where schema 1 was
MAX_TIMELINE_EPISODES = 2000
MAX_RAW = 20_000  # characters of a damaged line that are shown
NO_TRAJECTORY = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class RunView:
    """A run folder that is read while the run goes on.

    Args:
        run_dir: the run folder.

    Raises:
        UserError: it is no run folder, or holds a record of an earlier version.
    """

    def __init__(self, run_dir: Path) -> None:
        check_run_dir(run_dir)
        self.run_dir = run_dir
        self.name = run_dir.resolve().name
        self.index = EpisodeIndex(run_dir / FOLDER)
        self._metrics = MetricsFile(run_dir / METRICS)
        self._decoder = TokenDecoder(run_dir / "tokenizer")
        self._images = ImageStore(run_dir / FOLDER / IMAGE_FOLDER)

    def refresh(self) -> None:
        """Read what was written since the last time."""
        self._metrics.refresh()
        self.index.refresh()

    def description(self) -> dict[str, Any]:
        """Its name, damaged lines by file, how much is indexed, and the values to filter by."""
        table = self.index.table()
        indexed, size = self.index.progress()
        return {
            "name": self.name,
            "episodes": len(table),
            "damaged": self._damaged_lines(table),
            "indexed": indexed,
            "size": size,
            "phases": phase_steps(table),
            **{name: distinct_texts(table, name) for name in ("agent", "stop_reason")},
        }

    def _damaged_lines(self, table: EpisodeTable) -> dict[str, int]:
        """The number of damaged lines of each file that has some."""
        segments, counts = np.unique(table.segment[table.column("damage") != 0], return_counts=True)
        of_segments = {
            f"{FOLDER}/{table.segments[i]}.jsonl": int(n) for i, n in zip(segments, counts)
        }
        of_metrics = {METRICS: n} if (n := self._metrics.num_damaged) else {}
        return of_metrics | of_segments

    def episodes(self, query: EpisodeQuery) -> dict[str, Any]:
        """The rows of a window, and how many there are in all."""
        table = self.index.table()
        rows = select(table, query)
        return {
            "total": len(rows),
            "offset": query.offset,
            "rows": [
                summary_to_json(table.episode_id(row), table.summary(row))
                for row in window(rows, query)
            ],
        }

    def episode(self, episode_id: str) -> dict[str, Any] | None:
        """A trajectory's JSON data with the text of its tokens; None where there is none."""
        line = self.index.read_line(episode_id)
        if line is None:
            return None
        try:
            data = parse_line(line)
            self._images.restore_available(data)
            return {
                "id": episode_id,
                "trajectory": data,
                "pieces": self._pieces(data),
                "texts": self._decoder.texts(alternative_ids(data)),
            }
        except NO_TRAJECTORY as error:
            raw = line.decode("utf-8", "replace")
            return {
                "id": episode_id,
                "damage": f"not a trajectory: {type(error).__name__}: {error}",
                "raw": raw[:MAX_RAW],
                "length": len(raw),
            }

    def _pieces(self, data: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
        """For each call of each turn the texts of what its prompt adds, and of its action."""
        return [
            [
                {
                    "prompt": self._decoder.pieces(call.get("added", call.get("prompt", []))),
                    "action": self._decoder.pieces(call["action"]),
                }
                for call in turn["calls"]
            ]
            for turn in data["turns"]
        ]

    def timeline(self, phase: str, step: float) -> dict[str, Any]:
        """The timeline of the episodes of a step."""
        table = self.index.table()
        query = EpisodeQuery(phase=phase, step_from=step, step_to=step, descending=False)
        rows = select(table, query)
        names = [table.episode_id(row) for row in rows[:MAX_TIMELINE_EPISODES].tolist()]
        timeline = step_timeline(self._trajectories(names))
        return {**timeline.to_json(), "shown": len(names), "total": len(rows)}

    def _trajectories(self, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name in names:
            try:
                data = parse_line(self.index.read_line(name) or b"")
            except NO_TRAJECTORY:
                continue
            yield name, data

    def metrics(self) -> dict[str, Any]:
        """The curves of all metrics by phase."""
        return self._metrics.to_json()

    def json_file(self, name: str) -> Any:
        """The contents of a JSON file of the folder; None where it is missing or damaged."""
        try:
            return json.loads((self.run_dir / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None


def alternative_ids(data: Mapping[str, Any]) -> set[int]:
    """The ids of the most likely tokens of all calls."""
    calls = [call for turn in data["turns"] for call in turn["calls"]]
    return {id for call in calls for row in call.get("alternatives") or () for id in row}


def check_run_dir(run_dir: Path) -> None:
    """Raises UserError where there is nothing to view."""
    if not run_dir.is_dir():
        raise UserError(f"there is no run folder {run_dir}: give those that agentrl-train wrote")
    if (run_dir / SINGLE_FILE).exists() and not (run_dir / FOLDER).exists():
        raise UserError(
            f"{run_dir / SINGLE_FILE} was written by an earlier version: "
            "view it with the version that wrote it"
        )
    if not any((run_dir / name).exists() for name in ("config.json", FOLDER)):
        raise UserError(f"{run_dir} is no run folder: give one that agentrl-train wrote")


def summary_to_json(episode_id: str, summary: EpisodeSummary) -> dict[str, Any]:
    """A row of the list; a number that is not finite is null, or text for an infinite one."""
    return {"id": episode_id, **{k: _json_number(v) for k, v in summary._asdict().items()}}


def _json_number(x: Any) -> Any:
    if not isinstance(x, float) or math.isfinite(x):
        return x
    return None if math.isnan(x) else {"$float": repr(x)}


def phase_steps(table: EpisodeTable) -> list[dict[str, Any]]:
    """The phases with their first and last recorded step and number of episodes."""
    code, step = table.column("phase"), table.column("step")
    rows = {int(c): step[(code == c) & np.isfinite(step)] for c in dict.fromkeys(code.tolist())}
    return [
        {"name": table.texts[c], "first": float(x.min()), "last": float(x.max()), "count": len(x)}
        for c, x in rows.items()
        if len(x)
    ]


def distinct_texts(table: EpisodeTable, name: str) -> list[str]:
    """The values of a text column, without the empty one; at most 100."""
    assert name in TEXTS
    codes: list[int] = np.unique(table.column(name)).astype(int).tolist()
    return sorted(table.texts[code] for code in codes if table.texts[code])[:100]
