"""Names in a config of what lies outside this package: programs, servers, modules."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from agentrl_jax.config_tree import values

_METADATA_KEY = "external"
Kind = Literal["program", "server", "module"]


class ExternalName(NamedTuple):
    """What a config would run, load or connect to."""

    kind: Kind
    name: str  # a command's arguments are joined by spaces
    location: str  # of the field in the config


def external(kind: Kind) -> dict[str, Any]:
    """Metadata of a config's field whose value names a program, or its arguments, or a server; the
    values of a mapping do.
    """
    return {_METADATA_KEY: kind}


class NamesExternals:
    """Base class of config dataclasses whose external names are not the values of single fields."""

    def external_names(self, location: str) -> Iterator[ExternalName]:
        """What this dataclass names, without the fields marked by `external`."""
        return iter(())


def external_names(config: Any) -> Iterator[ExternalName]:
    """All external names in a config; nothing is imported before its name was yielded."""
    for location, value in values(config):
        if isinstance(value, NamesExternals):
            yield from value.external_names(location)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _marked_names(value, location)


def _marked_names(config: Any, location: str) -> Iterator[ExternalName]:
    for field in dataclasses.fields(config):
        kind, value = field.metadata.get(_METADATA_KEY), getattr(config, field.name, None)
        if kind and isinstance(value, Mapping):
            for key, name in value.items():
                yield ExternalName(kind, name, f"{location}.{field.name}[{key!r}]")
        elif kind and value:
            name = value if isinstance(value, str) else " ".join(value)
            yield ExternalName(kind, name, f"{location}.{field.name}")
