"""Opens the files and datasets of other programs, whatever is parsed from their records."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agentrl_jax.errors import UserError
from agentrl_jax.formats.record_source import (
    IndexedSource,
    ParsedLines,
    ParsedRecords,
    StrictLines,
)
from agentrl_jax.storage.record_files import FORMATS, INSTALL_HINT, Record, open_records

TFDS = "tfds:"  # before the name of a builder
T = TypeVar("T")


def open_parsed(
    path: Path,
    parse_line: Callable[[str], T],
    parse_columns: Callable[[Record], T],
) -> IndexedSource[T] | None:
    """What is parsed from the lines of a JSONL file or from the rows of any other source; None
    where the path is neither a file of a known format nor a folder of one.

    Args:
        path: a file, a folder, or "tfds:name/config"; "#name" at its end names another split than
            train.
        parse_line: of a file that ends in .jsonl; raises FieldError.
        parse_columns: of a row; raises FieldError.

    Raises:
        UserError: the source is missing, empty or damaged, or lacks the split.
    """
    path, split = split_of(path)
    if path.suffix in (".jsonl", ".ndjson") and not path.is_dir():
        return ParsedLines(StrictLines(path), parse_line)
    if str(path).startswith(TFDS):
        path = prepared_folder(str(path).removeprefix(TFDS))
    has_records = path.suffix in FORMATS or (path.is_dir() and _holds_records(path))
    return ParsedRecords(open_records(path, split), parse_columns) if has_records else None


def split_of(path: Path) -> tuple[Path, str]:
    """A path and its split: "data/chats#test" -> "data/chats", "test"."""
    name, mark, split = str(path).rpartition("#")
    return (Path(name), split) if mark and not path.exists() else (path, "train")


def _holds_records(folder: Path) -> bool:
    is_tfds = (folder / "features.json").is_file()
    return is_tfds or any(path.suffix in FORMATS for path in folder.rglob("*"))


def prepared_folder(name: str) -> Path:
    """The folder that a builder of tensorflow_datasets prepared ("lmrl_gym/wordle").

    Raises:
        UserError: there is no such builder, or it is not prepared.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(f"{TFDS}{name} needs tensorflow-datasets: {INSTALL_HINT}") from error
    try:
        folder = Path(tfds.builder(name, try_gcs=False).data_dir)
    except Exception as error:  # of many classes
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"there is no builder {name!r} ({reason:.200}): check its name") from error
    if not (folder / "features.json").is_file():
        raise UserError(
            f"{TFDS}{name} is not prepared in {folder}: call download_and_prepare() of "
            f"tfds.builder({name!r}, file_format='array_record') first"
        )
    return folder
