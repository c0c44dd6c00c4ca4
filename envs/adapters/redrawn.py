"""`Redrawn`: games that may be over before a player had a move."""

import contextlib
from typing import Any

from agentrl_jax.environment import Messages
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.multi_agent import MultiAgentEnvironment

_MAX_DRAWS = 20


class Redrawn(MultiAgentEnvironment):
    """A game that ends before the external player's first move is drawn again."""

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        for _ in range(_MAX_DRAWS - 1):
            with contextlib.suppress(EnvironmentFailure):
                return super()._reset(dict(options))
        return super()._reset(dict(options))
