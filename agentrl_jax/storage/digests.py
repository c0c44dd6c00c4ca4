"""Digests of a folder's files, by which damage is found before the folder is used.

    {"sha256": {"state/_METADATA": [812, "9f86d0..."], ...}}     digests.json: size in bytes, digest

The file is written last, so a folder whose writing was cut short has none. SHA-256 takes 0.6 s per
GiB and thread on a CPU with SHA instructions; files are read by several threads.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from agentrl_jax.storage.files import atomic_write

DIGESTS_FILE = "digests.json"
ALGORITHM = "sha256"
MAX_THREADS = 8


class FileDigest(NamedTuple):
    """What a file must be."""

    size: int  # bytes
    digest: str  # hexadecimal


def file_names(folder: Path) -> list[str]:
    """The files in a folder and below it, but for the digests, sorted: `state/_METADATA`."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if name != DIGESTS_FILE)


def digest_files(folder: Path, names: Sequence[str]) -> list[FileDigest]:
    """The digests of these files, in their order. Raises OSError where one cannot be read."""
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda name: _digest_file(folder / name), names))


def _digest_file(path: Path) -> FileDigest:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, ALGORITHM).hexdigest()
        return FileDigest(file.tell(), digest)


def write_digests(folder: Path, digests: Mapping[str, FileDigest]) -> None:
    """Write the digests of a folder whose other files are complete."""
    with atomic_write(folder / DIGESTS_FILE) as unfinished:
        unfinished.write_text(json.dumps({ALGORITHM: digests}, indent=1) + "\n", encoding="utf-8")


def read_digests(folder: Path) -> dict[str, FileDigest]:
    """The digests of a folder's files by name.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: they are damaged.
    """
    try:
        content = json.loads((folder / DIGESTS_FILE).read_bytes())
        return {name: FileDigest(*entry) for name, entry in content[ALGORITHM].items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{DIGESTS_FILE} is damaged") from error


def find_damage(folder: Path, digests: Mapping[str, FileDigest]) -> str | None:
    """What is wrong with the first damaged file, or None where all are as they were written."""
    by_size = (_size_damage(folder, name, expected.size) for name, expected in digests.items())
    return next(filter(None, by_size), None) or next(
        filter(None, _content_damages(folder, digests)), None
    )


def _size_damage(folder: Path, name: str, size: int) -> str | None:
    try:
        actual = (folder / name).stat().st_size
    except FileNotFoundError:
        return f"{name} is missing"
    except (OSError, ValueError) as error:
        return f"{name} cannot be read ({error})"
    return None if actual == size else f"{name} has {actual:,} bytes instead of {size:,}"


def _content_damages(folder: Path, digests: Mapping[str, FileDigest]) -> Iterable[str | None]:
    def damage(name: str) -> str | None:
        try:
            actual = _digest_file(folder / name)
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        return None if actual == digests[name] else f"{name} differs from what was written"

    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        yield from pool.map(damage, digests)


def add_digests(folder: Path) -> None:
    """Write the digests of all files of a folder."""
    names = file_names(folder)
    write_digests(folder, dict(zip(names, digest_files(folder, names), strict=True)))


def folder_damage(folder: Path) -> str | None:
    """What is wrong with a folder that has digests; None where nothing is, or where it has none."""
    try:
        return find_damage(folder, read_digests(folder))
    except FileNotFoundError:
        return None
    except ValueError:
        return f"{DIGESTS_FILE} is damaged"


@contextlib.contextmanager
def digested_write(path: Path) -> Iterator[Path]:
    """`atomic_write`, after which the digest of the file is kept in `digests.json` of its folder.

    Where it is cut short the file has no digest.
    """
    forget_digest(path)
    with atomic_write(path) as unfinished:
        yield unfinished
    keep_digest(path)


def keep_digest(path: Path) -> None:
    """Keep the digest of a file in its folder."""
    write_digests(path.parent, {**_recorded_digests(path.parent), path.name: _digest_file(path)})


def forget_digest(path: Path) -> None:
    """Keep no digest of a file any more, because it is about to change."""
    recorded_digests = _recorded_digests(path.parent)
    if path.name in recorded_digests:
        write_digests(
            path.parent, {name: x for name, x in recorded_digests.items() if name != path.name}
        )


def _recorded_digests(folder: Path) -> dict[str, FileDigest]:
    """The digests in a folder; none where there are none or they are damaged."""
    try:
        return read_digests(folder)
    except (OSError, ValueError):
        return {}


def file_damage(path: Path) -> str | None:
    """What is wrong with a file of which a digest is kept; None where nothing is, or none is."""
    try:
        expected = read_digests(path.parent).get(path.name)
    except FileNotFoundError:
        return None
    except ValueError:
        return f"{DIGESTS_FILE} beside it is damaged"
    return None if expected is None else find_damage(path.parent, {path.name: expected})
