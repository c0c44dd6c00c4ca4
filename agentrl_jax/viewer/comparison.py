"""Where the configs and summaries of runs differ."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_ROWS = 2000
NOT_CONFIG = ("code",)  # recorded beside the config: how it was made


def differences(data: Sequence[Any], only_differing: bool = True) -> list[dict[str, Any]]:
    """The leaves of several JSON values, side by side.

    [{"a": {"b": 1, "c": 5}}, {"a": {"b": 2, "c": 5}}] -> [{"path": "a.b", "values": [1, 2]}]
    """
    leaves = [dict(flatten(x)) for x in data]
    paths = list(dict.fromkeys(path for each in leaves for path in each))
    rows = [{"path": path, "values": [each.get(path) for each in leaves]} for path in paths]
    return [row for row in rows if not only_differing or _differs(row["values"])][:MAX_ROWS]


def _differs(values: Sequence[Any]) -> bool:
    return any(value != values[0] for value in values)


def flatten(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (path, leaf) of nested JSON; a config's class and fields are no part of a path."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            part = "" if name in ("fields", "dict") else str(name)
            yield from flatten(value, ".".join(filter(None, (path, part))))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from flatten(value, f"{path}[{_list_key(value, i)}]")
    else:
        yield path, data


def _list_key(value: Any, index: int) -> str:
    """A row of a table is known by its name, and else by its number."""
    name = value.get("name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else str(index)
