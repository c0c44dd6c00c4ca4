"""`EpisodeIndex`: where each line of a trajectory log is, and by what it is filtered and sorted.

    0-000000.jsonl, line 17 -> offset 120,331, 6,720 bytes, step 3, group 12, return 1.5, ...

Numbers stand in one array of float64 per segment and texts in one table, so an episode takes about
200 bytes and its name. Segments are read as they grow; a segment that was deleted leaves the index,
and one that was rewritten, as a resume does, is read again.
"""

import threading
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from agentrl_jax.storage.segments import segment_paths
from agentrl_jax.viewer.episode_summary import (
    NUMBERS,
    TEXTS,
    EpisodeSummary,
    summarize_line,
)
from agentrl_jax.viewer.growing_file import GrowingFile, file_size

COLUMNS = ("offset", "length", *NUMBERS, *TEXTS)
BATCH_LINES = 200  # lines that are read between two looks at the lock


class TextTable:
    """Texts by number; equal texts have one number."""

    def __init__(self) -> None:
        self.texts = [""]
        self._codes = {"": 0}

    def code(self, text: str) -> int:
        code = self._codes.setdefault(text, len(self.texts))
        if code == len(self.texts):
            self.texts.append(text)
        return code


@dataclass(frozen=True)
class EpisodeTable:
    """All indexed episodes at one moment, in the order of the record."""

    values: np.ndarray  # float64 [episodes, columns]
    segments: tuple[str, ...]
    segment: np.ndarray  # int64 [episodes]: index into `segments`
    line: np.ndarray  # int64 [episodes]: line of the segment, from 0
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.values)

    def column(self, name: str) -> np.ndarray:
        """A column's numbers; of a text its number in `texts`."""
        return self.values[:, COLUMNS.index(name)]

    def episode_id(self, row: int) -> str:
        """The name of an episode: its segment and line."""
        return f"{self.segments[self.segment[row]]}/{self.line[row]}"

    def summary(self, row: int) -> EpisodeSummary:
        numbers = self.values[row, 2 : 2 + len(NUMBERS)].tolist()
        codes = self.values[row, 2 + len(NUMBERS) :].astype(int)
        return EpisodeSummary(*numbers, *(self.texts[code] for code in codes))


class _Segment:
    def __init__(self, path: Path) -> None:
        self.file = GrowingFile(path)
        self.values = array("d")

    def __len__(self) -> int:
        return len(self.values) // len(COLUMNS)

    def table(self) -> np.ndarray:
        return np.array(self.values).reshape(-1, len(COLUMNS))


class EpisodeIndex:
    """The index of a folder of segments; one thread refreshes it while others read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: dict[str, _Segment] = {}
        self._texts = TextTable()
        self._lock = threading.Lock()
        self._version = 0  # changes with the contents
        self._table: tuple[int, EpisodeTable] | None = None

    def refresh(self) -> None:
        """Read what was written since the last time."""
        self._follow({path.stem: path for path in segment_paths(self._folder)})
        for segment in self._segments.values():
            if segment.file.was_replaced():
                with self._lock:
                    segment.values, self._version = array("d"), self._version + 1
            self._read(segment)

    def _follow(self, paths: Mapping[str, Path]) -> None:
        """Begin with new segments and forget those that were deleted."""
        with self._lock:
            if self._segments.keys() != paths.keys():
                self._version += 1
                self._segments = {
                    name: self._segments[name] if name in self._segments else _Segment(path)
                    for name, path in paths.items()
                }

    def _read(self, segment: _Segment) -> None:
        lines = segment.file.new_lines()
        while batch := list(islice(lines, BATCH_LINES)):
            summaries = [(at, len(line), summarize_line(line)) for at, line in batch]
            with self._lock:
                for at, length, summary in summaries:
                    segment.values.extend((at, length, *self._numbers(summary)))
                self._version += 1

    def _numbers(self, summary: EpisodeSummary) -> list[float]:
        return [self._texts.code(x) if isinstance(x, str) else x for x in summary]

    def table(self) -> EpisodeTable:
        """What is indexed now."""
        with self._lock:
            if self._table is None or self._table[0] != self._version:
                self._table = (self._version, self._copy())
            return self._table[1]

    def _copy(self) -> EpisodeTable:
        counts = [len(segment) for segment in self._segments.values()]
        tables = [segment.table() for segment in self._segments.values()]
        return EpisodeTable(
            np.concatenate([np.zeros((0, len(COLUMNS))), *tables]),
            tuple(self._segments),
            np.repeat(np.arange(len(counts)), counts),
            np.concatenate([np.arange(0), *map(np.arange, counts)]),
            list(self._texts.texts),
        )

    def progress(self) -> tuple[int, int]:
        """(bytes that are indexed, bytes that there are)."""
        with self._lock:
            files = [segment.file for segment in self._segments.values()]
        return sum(x.position for x in files), sum(file_size(x.path) for x in files)

    def read_line(self, episode_id: str) -> bytes | None:
        """The line of an episode; None where there is none of that name, or no more."""
        name, _, number = episode_id.partition("/")
        with self._lock:
            segment = self._segments.get(name)
            if segment is None or not _is_below(number, len(segment)):
                return None
            at = int(number) * len(COLUMNS)
            offset, length = map(int, segment.values[at : at + 2])
        try:
            with open(segment.file.path, "rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError:
            return None


def _is_below(number: str, count: int) -> bool:
    """Whether a text is the decimal number of one of `count` lines."""
    return number.isdecimal() and len(number) < 12 and int(number) < count
