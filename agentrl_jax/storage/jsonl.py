"""Files of JSON lines, such as the trajectory log and the metrics: strict, rewritten atomically.

The lines that a run writes end with a checksum (`line_checksum`), those of others need none.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.storage.digests import digested_write
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.storage.line_checksum import add_checksum, without_checksum

OnDamage = Callable[[Path, int, bytes, Exception], None]  # of a line: number from 1, bytes, why


def raise_damage(path: Path, number: int, line: bytes, reason: Exception) -> None:
    """Raises a UserError that names a damaged line."""
    raise UserError(
        f"{path}, line {number}: not a JSON object ({reason}); delete the line"
    ) from reason


def filter_lines(
    path: str | os.PathLike[str],
    predicate: Callable[[dict[str, Any]], bool],
    on_damage: OnDamage = raise_damage,
) -> None:
    """Rewrite a JSONL file, atomically, with only the lines whose dict satisfies `predicate`.

    A truncated last line is dropped; a missing file stays missing.

    Args:
        path: of the file.
        predicate: a KeyError or TypeError of its means that the line is damaged.
        on_damage: called with each other damaged line; where it returns, the line is dropped.

    Raises:
        UserError: the file cannot be read, or what `on_damage` raises.
    """
    path = Path(path)
    if not path.exists():
        return
    with atomic_write(path) as unfinished, open(unfinished, "wb") as file:
        for number, data, line in _read_lines(path, on_damage):
            try:
                included = predicate(data)
            except (KeyError, TypeError) as error:
                on_damage(path, number, line, ValueError(f"a field is missing or wrong: {error}"))
                continue
            if included:
                file.write(line.rstrip(b"\n") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def merge(paths: Sequence[Path], path: Path, sort_key: Callable[[dict[str, Any]], Any]) -> None:
    """Merge JSONL files into one, its lines sorted by `sort_key`, and delete them.

    The digest of the new file is kept beside it.
    """
    lines = sorted((data for part in paths for _, data in read_lines(part)), key=sort_key)
    with digested_write(path) as unfinished:
        unfinished.write_text("".join(map(_line, lines)), encoding="ascii")
    for part in paths:
        part.unlink()


def _line(data: Mapping[str, Any]) -> str:
    return add_checksum(json.dumps(data)) + "\n"


def repair(path: str | os.PathLike[str], on_damage: OnDamage = raise_damage) -> None:
    """Drop the truncated last line that a killed process may have left."""
    path = Path(path)
    if path.exists() and (size := path.stat().st_size):
        with open(path, "rb") as file:
            file.seek(size - 1)
            truncated = file.read() != b"\n"
        if truncated:
            filter_lines(path, lambda line: True, on_damage)


def read_lines(
    path: str | os.PathLike[str], on_damage: OnDamage = raise_damage
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number from 1, object) of a JSONL file, without checksums.

    What follows the last line feed counts only if it is a complete object. `on_damage` is called
    with each other damaged line.

    Raises:
        UserError: the file cannot be read, or what `on_damage` raises; it names file and line.
    """
    for number, data, _ in _read_lines(path, on_damage):
        yield number, data


def _read_lines(
    path: str | os.PathLike[str], on_damage: OnDamage = raise_damage
) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """`read_lines`, with each line as it stands in the file."""
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    data = json.loads(without_checksum(line))
                    if not isinstance(data, dict):
                        raise ValueError(f"an object was expected, not {type(data).__name__}")
                except (ValueError, RecursionError) as error:
                    if not line.endswith(b"\n"):  # truncated by a killed process
                        return
                    on_damage(Path(path), number, line, error)
                    continue
                yield number, data, line
    except OSError as error:
        raise UserError(
            f"cannot read {path} ({error.strerror}): name a file of JSON lines"
        ) from error


def dumps(data: Mapping[str, Any], description: str) -> str:
    """`data` as one line of strict JSON.

    Raises:
        UserError: JSON cannot hold the data; the message starts with `description`.
    """
    try:
        try:
            return json.dumps(data, allow_nan=False, default=_to_plain)
        except ValueError:  # a number is not finite
            return json.dumps(_to_json_data(data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"{description} cannot be written as JSON: {error}; "
            "put only plain data into an environment's info"
        ) from error


def record_line(data: Mapping[str, Any], description: str) -> str:
    """`dumps`, with a checksum and a line feed."""
    return add_checksum(dumps(data, description)) + "\n"


def _to_plain(x: Any) -> Any:
    """A NumPy array or number, or a mapping, as what `json` knows."""
    if isinstance(x, np.generic | np.ndarray):
        return x.tolist()
    if isinstance(x, Mapping):
        return dict(x)
    raise TypeError(f"Object of type {type(x).__name__} is not JSON serializable")


def _to_json_data(x: Any) -> Any:
    """JSON data: NumPy becomes plain, a non-finite float becomes {"$float": "nan"}."""
    if x is None or isinstance(x, str | int):
        return x
    if isinstance(x, np.generic | np.ndarray):
        x = x.tolist()
    if isinstance(x, Mapping):
        return {key: _to_json_data(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_to_json_data(value) for value in x]
    return {"$float": repr(x)} if isinstance(x, float) and not math.isfinite(x) else x


def from_json_data(x: Any) -> Any:
    """Parsed JSON with each {"$float": "nan"} as a float again."""
    if isinstance(x, dict):
        if x.keys() == {"$float"}:
            return parse_float(x)
        return {key: from_json_data(value) for key, value in x.items()}
    return [from_json_data(value) for value in x] if isinstance(x, list) else x


def parse_float(x: Any) -> float:
    """A float from parsed JSON, where {"$float": "nan"} stands for a non-finite one."""
    return float(x["$float"] if isinstance(x, dict) else x)
