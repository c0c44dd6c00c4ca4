"""Names in a config of what lies outside this package: programs, servers, modules."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

_METADATA_KEY = "external"
Kind = Literal["program", "server", "module"]


class ExternalName(NamedTuple):
    """What a config would run, load or connect to."""

    kind: Kind
    name: str  # a command's arguments are joined by spaces
    location: str  # of the field in the config


def external(kind: Kind) -> dict[str, Any]:
    """Metadata of a config's field whose value names a program, or its arguments, or a server."""
    return {_METADATA_KEY: kind}


class NamesExternals:
    """Base class of config dataclasses whose external names are not the values of single fields."""

    def external_names(self, location: str) -> Iterator[ExternalName]:
        """What this dataclass names, without the fields marked by `external`."""
        return iter(())


def external_names(config: Any, location: str = "config") -> Iterator[ExternalName]:
    """All external names in a config: dataclasses, mappings and sequences, nested in any way."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        if isinstance(config, NamesExternals):
            yield from config.external_names(location)
        for field in dataclasses.fields(config):
            value, inner = getattr(config, field.name, None), f"{location}.{field.name}"
            kind = field.metadata.get(_METADATA_KEY)
            if kind and value:
                name = value if isinstance(value, str) else " ".join(value)
                yield ExternalName(kind, name, inner)
            yield from external_names(value, inner)
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from external_names(value, f"{location}.{key}")
    elif isinstance(config, list | tuple):
        for i, value in enumerate(config):
            yield from external_names(value, f"{location}[{i}]")
