"""Environments for benchmarks: nearly free steps, and episodes and texts of given lengths."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium

from agentrl_jax.environment import Environment
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user
from agentrl_jax.workers.latency import EnvLatency, WithLatency
from agentrl_jax.workers.pool import InlinePool

RELAY_ID = "agentrl_jax.launch.benchmarks.synthetic_envs:bench/Relay-v0"
MODULUS = 997


class Relay(Environment):
    """Observations of fixed length for `turns` turns; rewards are a hash of the action's text.

    So the rewards within a group differ.
    """

    rules = "Say anything."
    reward_bounds = (0.0, 1.0)
    scripted_policies: ClassVar = {name: lambda env, random: "a" for name in ("random", "expert")}

    def __init__(
        self, turns: int, opening: int, reply: int, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self._turns, self._opening_length, self._reply = turns, opening, "a" * reply

    def _letters(self, count: int) -> str:
        return "".join(map(chr, self.np_random.integers(ord("a"), ord("z") + 1, count)))

    def _reset(self, options: dict[str, Any]) -> Any:
        self._turn = 0
        return (user(self._letters(self._opening_length)),), {}

    def _step(self, text: str) -> Any:
        self._turn += 1
        over = self._turn >= self._turns
        return (
            (user(self._reply),),
            zlib.crc32(text.encode()) % MODULUS / MODULUS,
            over,
            False,
            {"success": True} if over else {},
        )


if "bench/Relay-v0" not in gymnasium.registry:
    gymnasium.register("bench/Relay-v0", "agentrl_jax.launch.benchmarks.synthetic_envs:Relay")


class DelayedInlinePool(WithLatency):
    """Environments in this process with random latencies."""

    def __init__(self, mean_delay: float, spread: float) -> None:
        super().__init__(InlinePool(), EnvLatency(mean_delay, spread))
        self.on_reset: Callable[[], object] = lambda: None  # called when an episode begins

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        if op == "reset":
            self.on_reset()
        return super().request(op, env_id, timeout, **arguments)


def parse_delays(delays: str) -> list[float]:
    """The mean delays in a flag's value. Raises UserError where one is not a number."""
    try:
        return [float(x) for x in delays.split(",")]
    except ValueError as error:
        raise UserError(f"--delays={delays} must be numbers separated by commas") from error
