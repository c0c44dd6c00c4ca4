"""Worlds to measure with: they cost nothing themselves, and their episodes are as long as they are told."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agentrl_jax.environment import Environment
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


class Thinking(InProcess):
    """Worlds in this process whose answers come late, by log-normal delays that follow from the world's seed and turn alone.

    delay = mean exp(spread z - spread^2 / 2) with z from a standard normal distribution
    """

    def __init__(self, mean: float, spread: float) -> None:
        super().__init__()
        self._mean, self._spread = mean, spread
        self._seeds: dict[int, tuple[int, int]] = {}  # of each open world, and how many turns it has had
        self.on_start: Callable[[], object] = lambda: None  # called when an episode begins

    def delay(self, seed: int, turn: int) -> float:
        """Seconds before the answer to that turn."""
        z = np.random.default_rng([seed, turn]).normal()
        return float(self._mean * np.exp(self._spread * z - self._spread**2 / 2))

    def request(self, op: str, world: int, *within: float, **arguments: Any) -> Any:
        if op == "reset":
            self._seeds[world] = arguments["seed"], 0
            self.on_start()
        answer = super().request(op, world, *within, **arguments)
        if op != "step" or not self._mean:
            return answer
        seed, turn = self._seeds[world]
        self._seeds[world] = seed, turn + 1
        return asyncio.ensure_future(late(answer, self.delay(seed, turn)))


async def late(answer: Any, seconds: float) -> Any:
    await asyncio.sleep(seconds)
    return await answer
