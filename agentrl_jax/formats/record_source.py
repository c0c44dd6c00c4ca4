"""What is parsed from records by index, and from the lines of JSONL files, one record each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from agentrl_jax.errors import UserError
from agentrl_jax.formats.field_checks import FieldError
from agentrl_jax.storage.record_files import JsonLines, Record, RecordSource

MAX_LINE_BYTES = 32 * 2**20
T = TypeVar("T")
Covariant = TypeVar("Covariant", covariant=True)


@runtime_checkable
class IndexedSource(Protocol[Covariant]):
    """Items by index, each read when it is asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Covariant:
        """The item at an index from 0; UserError where it is damaged."""
        ...


@dataclass(frozen=True)
class ParsedRecords(Generic[T]):
    """An `IndexedSource` of what is parsed from records."""

    records: RecordSource
    parse: Callable[[Record], T]  # raises FieldError

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> T:
        record = self.records[index]
        try:
            return self.parse(record)
        except FieldError as error:
            raise UserError(f"{self.records.location(index)}{error}") from error


class StrictLines(JsonLines):
    """The lines of a file as text; a very long one is an error."""

    def __init__(self, path: Path) -> None:
        """Find the lines.

        Raises:
            UserError: the file is missing or empty, or a line is empty or longer than 32 MiB.
        """
        if not path.is_file():
            raise UserError(f"there is no file {path}: check the path")
        super().__init__(path)
        if not len(self):
            raise UserError(f"{path} is empty: it needs one JSON object a line")
        if (longest := int(self._lengths.max())) > MAX_LINE_BYTES:
            raise UserError(
                f"{self.location(int(self._lengths.argmax()))}: has {longest / 2**20:.0f} MiB of "
                f"at most {MAX_LINE_BYTES / 2**20:.0f}; split it, or name its images by URL"
            )

    def text(self, index: int) -> str:
        """A line without its line feed; UserError where it is not UTF-8."""
        with open(self._path, "rb") as file:
            file.seek(int(self._starts[index]))
            content = file.read(int(self._lengths[index])).removesuffix(b"\n")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{self.location(index)}: byte {error.start + 1} is not UTF-8; "
                "write the file in UTF-8"
            ) from error


@dataclass(frozen=True)
class ParsedLines(Generic[T]):
    """An `IndexedSource` of what is parsed from lines."""

    lines: StrictLines
    parse: Callable[[str], T]  # raises FieldError

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> T:
        line = self.lines.text(index)
        try:
            return self.parse(line)
        except FieldError as error:
            raise UserError(f"{self.lines.location(index)}{error}") from error
