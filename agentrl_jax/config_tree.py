"""Configs as trees: all that one holds, with the place of each value, and fields that do not count
at their default.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

_OMITTED_KEY = "omitted_at_default"
# Metadata of a field that a config's JSON form and digest leave out at its default: whoever adds
# a setting whose default changes nothing marks it so, and stored configs remain those of today.
OMITTED_AT_DEFAULT = {_OMITTED_KEY: True}


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


def is_omitted(field: "dataclasses.Field[Any]", value: Any) -> bool:
    """Whether a field is marked by `OMITTED_AT_DEFAULT` and has its default value."""
    if _OMITTED_KEY not in field.metadata:
        return False
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return bool(value == field.default)
