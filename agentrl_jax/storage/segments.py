"""Segments: the files of a log that grows, `<process>-<number>.jsonl`, each of bounded size.

Every process writes segments of its own. A segment is closed once it is full, and never changes
after that, except where a resume cuts the log back.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from agentrl_jax.storage.damaged_lines import num_damaged
from agentrl_jax.storage.jsonl import repair
from agentrl_jax.storage.line_counter import LineCounter

SEGMENT_BYTES = 64 * 2**20
NAME = re.compile(r"(\d+)-(\d{6,})\.jsonl")


class SegmentId(NamedTuple):
    """Which process wrote a segment, and as its how many-th."""

    process: int
    number: int

    @property
    def file_name(self) -> str:
        return f"{self.process}-{self.number:06d}.jsonl"


def segment_ids(folder: Path, process: int | None = None) -> list[SegmentId]:
    """The segments of a process, or of all one after the other; none without the folder."""
    matches = map(NAME.fullmatch, os.listdir(folder) if folder.is_dir() else ())
    ids = sorted(SegmentId(*map(int, match.groups())) for match in matches if match)
    return [id for id in ids if process in (None, id.process)]


def segment_paths(folder: Path, process: int | None = None) -> list[Path]:
    """The paths of `segment_ids`."""
    return [folder / id.file_name for id in segment_ids(folder, process)]


def without_trimmed(folder: Path, expected: Mapping[str, int]) -> dict[str, int]:
    """Numbers of lines by file, without the segments that are older than all that their process has
    left: those were deleted for the size budget.

    Args:
        folder: of the segments.
        expected: lines by path, relative to the folder that `folder` is in.
    """
    oldest: dict[int, SegmentId] = {}
    for id in segment_ids(folder):
        oldest.setdefault(id.process, id)

    def was_trimmed(name: str) -> bool:
        parent, _, file_name = name.rpartition("/")
        match = NAME.fullmatch(file_name) if parent == folder.name else None
        if match is None:
            return False
        id = SegmentId(*map(int, match.groups()))
        return id < oldest.get(id.process, id)

    return {name: lines for name, lines in expected.items() if not was_trimmed(name)}


class SegmentWriter:
    """Appends lines to the segments of one process."""

    def __init__(
        self, folder: Path, process: int, max_bytes: int, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """Nothing is opened before the first line.

        Args:
            folder: of the segments; made with the first line.
            process: whose segments.
            max_bytes: of all segments of the process, see `trim_oldest`.
            segment_bytes: a segment that has so many is closed.
        """
        self._folder, self._process = folder, process
        self._max_bytes, self._segment_bytes = max_bytes, segment_bytes
        self._file: IO[str] | None = None
        self._counters: dict[Path, LineCounter] = {}

    @property
    def paths(self) -> list[Path]:
        return segment_paths(self._folder, self._process)

    def write(self, lines: Sequence[str]) -> None:
        """Append lines; they stay in one segment."""
        if not lines:
            return
        if self._file is None:
            self._open()
        assert self._file is not None
        self._file.write("".join(lines))
        self._file.flush()  # so that other processes can read them
        if self._file.tell() >= self._segment_bytes:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        *_, last = SegmentId(self._process, 0), *segment_ids(self._folder, self._process)
        path = self._folder / last.file_name
        if path.exists() and path.stat().st_size >= self._segment_bytes:
            path = self._folder / last._replace(number=last.number + 1).file_name
        repair(path)
        self._file = open(path, "a", encoding="ascii")  # noqa: SIM115

    def sync(self) -> dict[str, int]:
        """Bring all segments to the disk; returns how many lines each has, with those that were set
        aside, by "folder/name".
        """
        counts = {}
        for path in self.paths:
            counter = self._counters.setdefault(path, LineCounter(path))
            counts[f"{self._folder.name}/{path.name}"] = counter.sync() + num_damaged(path)
        return counts

    def trim_oldest(self, other_bytes: int = 0) -> Path | None:
        """Delete the oldest segment where all together, with `other_bytes`, are larger than
        `max_bytes`; the newest stays. Returns what was deleted.
        """
        paths = self.paths
        total = sum(path.stat().st_size for path in paths) + other_bytes
        if total <= self._max_bytes or len(paths) < 2:
            return None
        paths[0].unlink()
        self._counters.pop(paths[0], None)
        return paths[0]

    def forget_counts(self) -> None:
        """Count lines anew: the segments were rewritten."""
        self._counters.clear()

    def close(self) -> None:
        """Close the open segment; the next line opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None
