"""Environments of Gymnasium's API: making them, and what the numbers of some mean."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from agentrl_jax.errors import UserError


@dataclass(frozen=True)
class Labels:
    """What an environment's numbers mean."""

    actions: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()  # of an observation
    # An episode that terminated has succeeded where its last reward is at least this; None: above 0
    success_reward: float | None = None
    rewards: tuple[float, float] = (-np.inf, np.inf)  # of a step


LABELS = {
    "FrozenLake-v1": Labels(("left", "down", "right", "up"), (), None, (0.0, 1.0)),
    "Taxi-v4": Labels(
        ("south", "north", "east", "west", "pickup", "dropoff"), (), None, (-10.0, 20.0)
    ),
    "CliffWalking-v1": Labels(("up", "right", "down", "left"), (), -1.0, (-100.0, -1.0)),
    "Blackjack-v1": Labels(
        ("stick", "hit"), ("your sum", "dealer's card", "usable ace"), None, (-1.5, 1.5)
    ),
}


def make_gymnasium(name: str, module: str, options: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Gymnasium's environment, which renders as text where it can.

    Raises:
        UserError: there is none of that name, or it does not take the options.
    """
    try:
        if ":" in name:
            raise UserError(f"name the module of {name!r} in the option module")
        identifier = f"{module}:{name}" if module else name
        env = gymnasium.make(identifier, disable_env_checker=True, **options)
        if "ansi" in (env.metadata or {}).get("render_modes", []):
            env = gymnasium.make(
                identifier, render_mode="ansi", disable_env_checker=True, **options
            )
    except (gymnasium.error.Error, ImportError, TypeError, ValueError, AssertionError) as error:
        raise UserError(f"Gymnasium does not make {name!r} with {options}: {error}") from error
    return env
