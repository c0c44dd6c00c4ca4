"""Counts the lines of a growing file, and brings them to the disk."""

import os
from pathlib import Path

CHUNK = 2**20  # bytes


class LineCounter:
    """The number of lines of a file that others append to; only what is new is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset, self._lines = 0, 0

    def sync(self) -> int:
        """Return once the file is on the disk; returns how many lines it has, 0 without a file."""
        if not self._path.exists():
            return 0
        with open(self._path, "rb") as file:
            os.fsync(file.fileno())
            if os.fstat(file.fileno()).st_size < self._offset:  # it was cut back
                self._offset, self._lines = 0, 0
            file.seek(self._offset)
            while chunk := file.read(CHUNK):
                self._lines += chunk.count(b"\n")
            self._offset = file.tell()
        return self._lines
