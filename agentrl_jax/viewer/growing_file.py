"""`GrowingFile`: the complete lines of a file that another process appends to."""

import os
from collections.abc import Iterator
from pathlib import Path


class GrowingFile:
    """Reads each complete line once; a file that was replaced or cut is read from its start again.

    A last line without a line feed is still being written, so it is left for later.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0  # bytes that were read
        self._identity: tuple[int, int] | None = None

    def was_replaced(self) -> bool:
        """Whether the file is another one than before, or shorter; then reading starts over."""
        try:
            stat = self.path.stat()
        except OSError:
            return False
        identity = (stat.st_dev, stat.st_ino)
        replaced = self._identity not in (None, identity) or stat.st_size < self.position
        self._identity = identity
        if replaced:
            self.position = 0
        return replaced

    def new_lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields (byte offset, line) of the complete lines that were not read yet."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.position)
                for line in file:
                    if not line.endswith(b"\n"):
                        return
                    offset, self.position = self.position, self.position + len(line)
                    yield offset, line
        except OSError:  # deleted meanwhile, or not readable: it has no more lines
            return


def file_size(path: str | os.PathLike[str]) -> int:
    """Bytes; 0 where there is no such file."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
