"""Flags made of a dataclass: a field's default and its one-line doc are written once, on the field."""

import ast
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from absl import flags

from agentrl_jax.errors import UserError
from agentrl_jax.launch import command

flags.disclaim_key_flags()  # the command that declares them shows them under --help
T = TypeVar("T")


def option(default: Any, doc: str, least: int | float | None = None) -> Any:
    """A field that is a flag; a number may have a least value, a tuple is a flag that may be repeated."""
    return dataclasses.field(default=default, metadata={"doc": doc, "least": least})


def declare(kind: type) -> None:
    """Define a flag for each field of the dataclass that is an option."""
    for field in _options(kind):
        doc, least, default = field.metadata["doc"], field.metadata["least"], field.default
        if isinstance(default, bool):
            flags.DEFINE_bool(field.name, default, doc)
        elif isinstance(default, int):
            flags.DEFINE_integer(field.name, default, doc, lower_bound=least)
        elif isinstance(default, float):
            flags.DEFINE_float(field.name, default, doc, lower_bound=least)
        elif isinstance(default, tuple):
            flags.DEFINE_multi_string(field.name, list(default), doc)
        else:
            flags.DEFINE_string(field.name, str(default), doc)


def read(kind: type[T], **others: Any) -> T:
    """The dataclass with the values of the parsed flags, and of `others` that are no flags."""
    return kind(**{field.name: flags.FLAGS[field.name].value for field in _options(kind)}, **others)


def literals(texts: Sequence[str]) -> dict[str, Any]:
    """What name=value, ... say; a value that is no Python literal is text. Raises UserError where there is no "="."""
    read: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--option={text} is not of the form name=value")
        try:
            read[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            read[key] = value
    return read


def _options(kind: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if "doc" in field.metadata]


def launcher(kind: Any, verbs: Sequence[str], doc: str | None, argv: Sequence[str] | None = None) -> int:
    """PROGRAM VERB [--flags] [-- flags of the training]: calls the method VERB of the dataclass. Returns the exit status.

    `doc` is what --help says first.
    """
    program, *rest = sys.argv if argv is None else argv
    verb = rest.pop(0) if rest and not rest[0].startswith("-") else ""
    mine = rest[: rest.index("--")] if "--" in rest else rest
    declare(kind)

    def start() -> None:
        if verb not in verbs:
            raise UserError(f"say what to do: {'|'.join(verbs)}" + (f", not {verb!r}" if verb else ""))
        getattr(read(kind, arguments=tuple(rest[len(mine) + 1 :])), verb)()

    return command.run(start, [program, *mine], doc)
