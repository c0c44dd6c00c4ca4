"""An environment that runs each action as Python in its worker: "support.probing_env:Probe-v0"."""

import contextlib
import io
import traceback
from typing import Any

import gymnasium

from agentrl_jax.environment import Environment, Messages
from agentrl_jax.messages import user

ENVIRONMENT_ID = "support.probing_env:Probe-v0"


class Probe(Environment):
    """The answer to an action is what it prints, or the last line of its traceback."""

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        self.names: dict[str, Any] = {}
        return (user("?"),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            try:
                exec(text, self.names)
            except Exception:
                print(traceback.format_exc().splitlines()[-1])
        return (user(output.getvalue()),), 0.0, False, False, {}


if "Probe-v0" not in gymnasium.registry:
    gymnasium.register("Probe-v0", entry_point="support.probing_env:Probe")
