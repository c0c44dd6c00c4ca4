"""Numbers of configs that are NaN; infinite ones mean "no limit"."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from agentrl_jax.errors import UserError


def nan_fields(x: Any, location: str = "config") -> Iterator[str]:
    """The numbers of a config that are NaN."""
    if isinstance(x, float) and math.isnan(x):
        yield f"{location}={x}"
    elif isinstance(x, dict):
        for key, value in x.items():
            yield from nan_fields(value, f"{location}.{key}")
    elif isinstance(x, list | tuple):
        for i, value in enumerate(x):
            yield from nan_fields(value, f"{location}[{i}]")
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        for f in dataclasses.fields(x):
            yield from nan_fields(getattr(x, f.name), f"{location}.{f.name}")


def check_not_nan(config: Any) -> None:
    """Raises UserError for the first number of a config that is NaN; names its field."""
    for field in nan_fields(config):
        raise UserError(f"{field} is not a number: give one")
