"""Flags made of a dataclass: a field's default and its one-line doc are written once, on the field."""

import dataclasses
from typing import Any, TypeVar

from absl import flags

flags.disclaim_key_flags()  # the command that declares them shows them under --help
T = TypeVar("T")


def option(default: Any, doc: str, least: int | float | None = None) -> Any:
    """A field that is a flag; a number may have a least value."""
    return dataclasses.field(default=default, metadata={"doc": doc, "least": least})


def declare(kind: type) -> None:
    """Define a flag for each field of the dataclass."""
    for field in dataclasses.fields(kind):
        doc, least, default = field.metadata["doc"], field.metadata["least"], field.default
        if isinstance(default, bool):
            flags.DEFINE_bool(field.name, default, doc)
        elif isinstance(default, int):
            flags.DEFINE_integer(field.name, default, doc, lower_bound=least)
        elif isinstance(default, float):
            flags.DEFINE_float(field.name, default, doc, lower_bound=least)
        else:
            flags.DEFINE_string(field.name, str(default), doc)


def read(kind: type[T]) -> T:
    """The dataclass with the values of the parsed flags."""
    return kind(**{field.name: flags.FLAGS[field.name].value for field in dataclasses.fields(kind)})  # type: ignore[arg-type]
