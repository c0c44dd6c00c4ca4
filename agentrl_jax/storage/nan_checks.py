"""Numbers of configs that are NaN; infinite ones mean "no limit"."""

import math
from typing import Any

from agentrl_jax.config_tree import values
from agentrl_jax.errors import UserError


def check_not_nan(config: Any) -> None:
    """Raises UserError for the first number of a config that is NaN; names its field."""
    for location, value in values(config):
        if isinstance(value, float) and math.isnan(value):
            raise UserError(f"{location}={value} is not a number: give one")
