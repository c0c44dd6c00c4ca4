"""`values`: all that a config holds, with the place of each value."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


def values(config: Any, location: str = "config") -> Iterator[tuple[str, Any]]:
    """(location, value) of a config and of all in it: dataclasses, mappings and sequences, nested
    in any way; each before what it holds.
    """
    yield location, config
    for suffix, value in _children(config):
        yield from values(value, location + suffix)


def _children(config: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        for field in dataclasses.fields(config):
            yield f".{field.name}", getattr(config, field.name, None)
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield f".{key}", value
    elif isinstance(config, list | tuple):
        for i, value in enumerate(config):
            yield f"[{i}]", value
