"""Flags made of a dataclass: a field's default and its one-line doc are written once, on the
field.
"""

import ast
import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from absl import flags

from agentrl_jax.errors import UserError
from agentrl_jax.launch import cli

flags.disclaim_key_flags()  # the command that declares them shows them under --help
T = TypeVar("T")


def option(default: Any, doc: str, minimum: int | float | None = None) -> Any:
    """A field that is a flag; `minimum` bounds a number, a tuple is a flag that may be repeated."""
    return dataclasses.field(default=default, metadata={"doc": doc, "minimum": minimum})


def define_flags(options_class: type) -> None:
    """Define a flag for each field of the dataclass that is an option."""
    for field in _option_fields(options_class):
        doc, default = field.metadata["doc"], field.default
        minimum = field.metadata["minimum"]
        if isinstance(default, bool):
            flags.DEFINE_bool(field.name, default, doc)
        elif isinstance(default, int):
            flags.DEFINE_integer(field.name, default, doc, lower_bound=minimum)
        elif isinstance(default, float):
            flags.DEFINE_float(field.name, default, doc, lower_bound=minimum)
        elif isinstance(default, tuple):
            flags.DEFINE_multi_string(field.name, list(default), doc)
        else:
            flags.DEFINE_string(field.name, str(default), doc)


def from_flags(options_class: type[T], **extra_fields: Any) -> T:
    """The dataclass with the values of the parsed flags and the given other fields."""
    return options_class(
        **{field.name: flags.FLAGS[field.name].value for field in _option_fields(options_class)},
        **extra_fields,
    )


def parse_literals(texts: Sequence[str], flag: str = "option") -> dict[str, Any]:
    """["n=3", "s=ab"] -> {"n": 3, "s": "ab"}: values are Python literals, or else text.

    Raises:
        UserError: there is no "=".
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--{flag}={text} is not of the form name=value")
        try:
            values[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[key] = value
        if isinstance(values[key], float) and not math.isfinite(values[key]):
            raise UserError(f"--{flag}={text} is not finite: give a number")
    return values


def _option_fields(options_class: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(options_class) if "doc" in field.metadata]


def run_launcher(
    options_class: Any, actions: Sequence[str], doc: str | None, argv: Sequence[str] | None = None
) -> int:
    """PROGRAM ACTION [--flags] [-- flags of agentrl-train]: call the dataclass's method ACTION.

    Returns the exit status. `doc` is the text of --help before the flags.
    """
    program, *remaining = sys.argv if argv is None else argv
    action = remaining.pop(0) if remaining and not remaining[0].startswith("-") else ""
    owned = remaining[: remaining.index("--")] if "--" in remaining else remaining
    define_flags(options_class)

    def start() -> None:
        if action not in actions:
            raise UserError(
                f"give an action: {'|'.join(actions)}" + (f", not {action!r}" if action else "")
            )
        getattr(from_flags(options_class, arguments=tuple(remaining[len(owned) + 1 :])), action)()

    return cli.run(start, [program, *owned], doc)
