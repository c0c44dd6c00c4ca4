"""Numbers of configs that are infinite or NaN."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from agentrl_jax.errors import UserError


def nonfinite_fields(x: Any, location: str = "config") -> Iterator[str]:
    """The numbers of a config that are infinite or NaN, and not the default of their field."""
    if isinstance(x, float) and not math.isfinite(x):
        yield f"{location}={x}"
    elif isinstance(x, dict):
        for key, value in x.items():
            yield from nonfinite_fields(value, f"{location}.{key}")
    elif isinstance(x, list | tuple):
        for i, value in enumerate(x):
            yield from nonfinite_fields(value, f"{location}[{i}]")
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        for f in dataclasses.fields(x):
            value = getattr(x, f.name)
            if not (isinstance(value, float) and value == f.default):
                yield from nonfinite_fields(value, f"{location}.{f.name}")


def check_finite(config: Any) -> None:
    """Raises UserError for the first number of a config that is not finite; names its field."""
    for field in nonfinite_fields(config):
        raise UserError(f"{field} is not finite: give a number")
