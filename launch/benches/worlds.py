"""Worlds to measure with: they cost nothing themselves, and their episodes are as long as they are told."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium

from agentrl_jax.delays import Delay, Delayed
from agentrl_jax.environment import Environment
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user
from agentrl_jax.workers import InProcess

RELAY = "agentrl_jax.launch.benches.worlds:bench/Relay-v0"
MODULUS = 997


class Relay(Environment):
    """Opens and answers with so many letters, `turns` times; pays by what was said, so that a group's rewards differ."""

    rules = "Say anything."
    reward_bounds = (0.0, 1.0)
    players: ClassVar = {name: lambda env, random: "a" for name in ("random", "expert")}

    def __init__(self, turns: int, opening: int, reply: int, render_mode: str | None = None) -> None:
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
        return (user(self._reply),), zlib.crc32(text.encode()) % MODULUS / MODULUS, over, False, {"success": True} if over else {}


if "bench/Relay-v0" not in gymnasium.registry:
    gymnasium.register("bench/Relay-v0", "agentrl_jax.launch.benches.worlds:Relay")


class Thinking(Delayed):
    """Worlds in this process whose answers come late."""

    def __init__(self, mean: float, spread: float) -> None:
        super().__init__(InProcess(), Delay(mean, spread))
        self.on_start: Callable[[], object] = lambda: None  # called when an episode begins

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        if op == "reset":
            self.on_start()
        return super().request(op, world, within, **arguments)


def means_of(delays: str) -> list[float]:
    """The mean delays that a flag lists. Raises UserError where they are no numbers."""
    try:
        return [float(x) for x in delays.split(",")]
    except ValueError as error:
        raise UserError(f"--delays={delays} must be numbers with commas between them") from error
