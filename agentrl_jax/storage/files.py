"""Files and folders that are written atomically."""

import contextlib
import dataclasses
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path next to `path`, which replaces `path` when the block ends and is
    removed if it raises.

    Readers see the old file or the new one, also after a power failure; when several processes
    write at once, the last to finish wins.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        flush_to_disk(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yields a new empty folder next to `folder`, which becomes `folder` when the block ends and is
    removed if it raises; `folder` must not exist.
    """
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        for path in unfinished.rglob("*"):
            if path.is_file():
                flush_to_disk(path)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def remove_unfinished(folder: Path) -> None:
    """Delete what killed processes left unfinished in a folder; nobody else may write in it."""
    for path in list(folder.rglob("*.unfinished")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush_to_disk(path: Path) -> None:
    """Return once the content of a file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically; dataclasses become objects, non-finite numbers null."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(json_text(content))


def json_text(content: Any) -> str:
    """JSON of many lines; dataclasses become objects, non-finite numbers null."""
    return json.dumps(_null_nonfinite(content), indent=1) + "\n"


def _null_nonfinite(x: Any) -> Any:
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        x = dataclasses.asdict(x)
    if isinstance(x, dict):
        return {key: _null_nonfinite(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_null_nonfinite(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
