"""`Delayed`: worlds whose answers come late, for experiments with slow environments."""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.workers import Workers


@dataclass
class Delay:
    """A log-normal time that follows from the world's seed and the turn alone.

    seconds exp(spread z - spread^2 / 2) with z from a standard normal distribution
    """

    seconds: float = 0.0  # the mean; 0: none
    spread: float = 1.0  # standard deviation of the logarithm

    def of(self, seed: int, turn: int) -> float:
        """Seconds before the answer to that turn."""
        z = np.random.default_rng([seed, turn]).normal()
        return float(self.seconds * np.exp(self.spread * z - self.spread**2 / 2))


class Delayed:
    """A pool whose answers to steps are held back; resets and scripted players are not."""

    def __init__(self, workers: Workers, delay: Delay) -> None:
        """Raises UserError where the delay is negative."""
        if min(delay.seconds, delay.spread) < 0:
            raise UserError(f"config.environment.delay needs seconds and spread of at least 0, not {delay}")
        self._workers, self._delay = workers, delay
        self._turns: dict[int, tuple[int, int]] = {}  # of each open world its seed, and how many turns it has had
        self.busy = 0.0  # seconds that worlds were waited for, added up

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        answer = self._workers.request(op, world, within, **arguments)
        if op == "reset":
            self._turns[world] = arguments["seed"], 0
        if op == "close":
            self._turns.pop(world, None)
        if op != "step" or not self._delay.seconds:
            return answer
        seed, turn = self._turns[world]
        self._turns[world] = seed, turn + 1
        return asyncio.ensure_future(self._late(answer, self._delay.of(seed, turn)))

    async def _late(self, answer: "asyncio.Future[Any]", seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return (await asyncio.gather(answer, asyncio.sleep(seconds)))[0]
        finally:
            self.busy += loop.time() - began

    def where(self, world: int) -> str:
        return self._workers.where(world)

    async def start(self) -> None:
        await self._workers.start()

    async def stop(self) -> None:
        await self._workers.stop()
