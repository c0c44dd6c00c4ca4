"""Files of records behind one random-access interface: JSON lines, Parquet, Arrow, prepared
`tensorflow_datasets`, and dataset folders of Hugging Face.
"""

import functools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError

Record = dict[str, Any]
CACHED_ROW_GROUPS = 8  # of a Parquet file, decoded
INSTALL_HINT = "pip install 'agentrl_jax[data]'"


class RecordSource(ABC):
    """Records by index, each a dict of plain data; a source for `grain.MapDataset.source`.

    Nothing is read before it is indexed, and any thread may index.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Record: ...

    @abstractmethod
    def location(self, index: int) -> str:
        """Where a record stands, for messages: "tasks.jsonl, line 3"."""


class JsonLines(RecordSource):
    """The objects of a JSONL file. Only their offsets are in memory."""

    def __init__(self, path: Path) -> None:
        """Find the lines; blank ones may follow the last object, but precede none.

        Raises:
            UserError: a line before the last object is blank.
        """
        self._path = path
        starts, lengths, offset = [], [], 0
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    if number > len(starts) + 1:
                        raise UserError(f"{path}, line {len(starts) + 1}: is empty; delete it")
                    starts.append(offset)
                    lengths.append(len(line))
                offset += len(line)
        self._starts, self._lengths = np.array(starts, np.int64), np.array(lengths, np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Record:
        with open(self._path, "rb") as file:
            file.seek(int(self._starts[index]))
            line = file.read(int(self._lengths[index]))
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.location(index)}: not JSON ({error}): mend the line") from error
        if not isinstance(record, dict):
            raise UserError(
                f"{self.location(index)}: an object was expected, not {line[:30]!r}: mend the line"
            )
        return record

    def location(self, index: int) -> str:
        return f"{self._path}, line {index + 1}"


class TableRows(RecordSource):
    """The rows of a file whose parts (row groups, record batches) are loaded by index."""

    def __init__(self, path: Path, lengths: Sequence[int], load: Callable[[int], Any]) -> None:
        """`load(i)` is the Arrow table or record batch of part i, of `lengths[i]` rows."""
        self._path, self._load = path, load
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Record:
        part = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[part - 1]) if part else 0
        return self._load(part).slice(index - start, 1).to_pylist()[0]

    def location(self, index: int) -> str:
        return f"{self._path}, row {index}"


class TfdsRecords(RecordSource):
    """The examples of a split that `tensorflow_datasets` prepared as ArrayRecord files.

    Texts become `str`, numbers and vectors plain data; larger arrays stay.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self._folder, self._split = folder, split
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise UserError(f"{folder} needs tensorflow-datasets: {INSTALL_HINT}") from error
        try:
            builder: Any = tfds.builder_from_directory(folder)
            self._source = builder.as_data_source(split)
        except (ValueError, NotImplementedError, ImportError) as error:
            raise UserError(
                f"the split {split!r} of {folder} cannot be read ({str(error).splitlines()[0]}): "
                'prepare it with file_format="array_record"'
            ) from error

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Record:
        return _plain(self._source[index])

    def location(self, index: int) -> str:
        return f"{self._folder}, example {index} of {self._split}"


class JoinedRecords(RecordSource):
    """The records of several sources, one after the other."""

    def __init__(self, sources: Sequence[RecordSource]) -> None:
        self._sources, self._ends = sources, np.cumsum(list(map(len, sources)))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Record:
        source, inner = self._find(index)
        return source[inner]

    def location(self, index: int) -> str:
        source, inner = self._find(index)
        return source.location(inner)

    def _find(self, index: int) -> tuple[RecordSource, int]:
        i = int(np.searchsorted(self._ends, index, side="right"))
        return self._sources[i], index - (int(self._ends[i - 1]) if i else 0)


def _plain(x: Any) -> Any:
    """NumPy values and bytes of an example as plain data; arrays of two or more axes stay."""
    if isinstance(x, dict):
        return {name: _plain(value) for name, value in x.items()}
    if isinstance(x, np.ndarray) and x.ndim > 1 and x.dtype != object:
        return x
    if isinstance(x, np.ndarray | np.generic):
        x = x.tolist()
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    return x.decode() if isinstance(x, bytes) else x


def _open_parquet(path: Path) -> RecordSource:
    from pyarrow import parquet

    metadata = parquet.read_metadata(path)

    # A file of its own for each read: one file must not be read by several threads.
    @functools.lru_cache(CACHED_ROW_GROUPS)
    def load(group: int) -> Any:
        return parquet.ParquetFile(path, metadata=metadata).read_row_group(group)

    groups = range(metadata.num_row_groups)
    return TableRows(path, [metadata.row_group(group).num_rows for group in groups], load)


def _open_arrow(path: Path) -> RecordSource:
    import pyarrow as pa

    mapped = pa.memory_map(str(path))  # batches are views of the file
    is_file_format = mapped.read(6) == b"ARROW1"
    mapped.seek(0)
    reader = pa.ipc.open_file(mapped) if is_file_format else pa.ipc.open_stream(mapped)
    batches = reader.read_all().to_batches()
    return TableRows(path, [batch.num_rows for batch in batches], batches.__getitem__)


FORMATS: dict[str, Callable[[Path], RecordSource]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".parquet": _open_parquet,
    ".arrow": _open_arrow,
}


def open_records(path: Path, split: str = "train") -> RecordSource:
    """The records of a file, or of one split of a dataset folder.

    A folder is what `tensorflow_datasets` prepared, what `Dataset.save_to_disk` wrote, or any
    folder of the formats (a clone from the hub): there a split's files have its name as a word of
    their path ("data/train-00000-of-00002.parquet"), and files that name no split are "train".

    Args:
        path: the file (.jsonl, .parquet, .arrow) or folder.
        split: of a folder; a file has none.

    Raises:
        UserError: there is no such file or split, it is empty or damaged, or a package is missing.
    """
    if not path.exists():
        raise UserError(f"there is no file or folder {path}: check the path")
    if not path.is_dir():
        source = _open_file(path)
    elif (path / "features.json").exists():
        source = TfdsRecords(path, split)
    else:
        source = JoinedRecords(list(map(_open_file, _split_files(path, split))))
    if not len(source):
        raise UserError(f"{path} holds no record: check the path")
    return source


def _open_file(path: Path) -> RecordSource:
    if path.suffix not in FORMATS:
        raise UserError(
            f"{path} is of no known format: records are read from {', '.join(FORMATS)} files "
            "(unpacked) and folders of them"
        )
    try:
        return FORMATS[path.suffix](path)
    except ImportError as error:
        raise UserError(f"{path} needs pyarrow: {INSTALL_HINT}") from error
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise UserError(
            f"{path} cannot be read ({str(error).splitlines()[0]}): check the file"
        ) from error


SPLITS = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "eval"),
}


def _split_files(folder: Path, split: str) -> list[Path]:
    """The files of a split, in order."""
    if (folder / "dataset_dict.json").exists() and (folder / split).is_dir():
        folder = folder / split  # a saved DatasetDict
    if (folder / "state.json").exists():
        state = json.loads((folder / "state.json").read_text())
        return [folder / data_file["filename"] for data_file in state["_data_files"]]
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in FORMATS
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    words = {
        path: {*re.split(r"[^a-z0-9]+", str(path.relative_to(folder)).lower())} for path in files
    }
    chosen = [path for path in files if words[path] & {*SPLITS.get(split, (split,))}]
    if not chosen and split == "train":
        all_names = {name for names in SPLITS.values() for name in names}
        chosen = [path for path in files if not words[path] & all_names]
    if not chosen:
        raise UserError(
            f"{folder} has no {', '.join(FORMATS)} file of the split {split!r}: "
            "name another split, or one of its files"
        )
    return chosen
