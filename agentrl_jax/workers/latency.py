"""`WithLatency`: delays the replies of environments, for experiments with slow ones."""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.workers.pool import WorkerPool


@dataclass
class EnvLatency:
    """A log-normal delay that depends only on the environment's seed and the turn.

    seconds * exp(spread * z - spread^2 / 2), with z standard normal
    """

    seconds: float = 0.0  # the mean; 0: none
    spread: float = 1.0  # standard deviation of the logarithm

    def sample(self, seed: int, turn: int) -> float:
        """Seconds before the reply to a turn."""
        z = np.random.default_rng([seed, turn]).normal()
        return float(self.seconds * np.exp(self.spread * z - self.spread**2 / 2))


class WithLatency:
    """A pool whose replies to steps are delayed; those to resets and scripted policies are not."""

    def __init__(self, workers: WorkerPool, latency: EnvLatency) -> None:
        """Raises UserError if the latency is negative."""
        if min(latency.seconds, latency.spread) < 0:
            raise UserError(
                f"config.environment.delay needs seconds and spread of at least 0, not {latency}"
            )
        self._workers, self._latency = workers, latency
        self._turns: dict[int, tuple[int, int]] = {}  # by environment: its seed, turns so far
        self.env_wait_seconds = 0.0  # total time spent waiting for environments

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        reply = self._workers.request(op, env_id, timeout, **arguments)
        if op == "reset":
            self._turns[env_id] = arguments["seed"], 0
        if op == "close":
            self._turns.pop(env_id, None)
        if op != "step" or not self._latency.seconds:
            return reply
        seed, turn = self._turns[env_id]
        self._turns[env_id] = seed, turn + 1
        return asyncio.ensure_future(self._delay_reply(reply, self._latency.sample(seed, turn)))

    async def _delay_reply(self, reply: "asyncio.Future[Any]", seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            result = await reply
            await asyncio.sleep(start + seconds - loop.time())
            return result
        finally:
            self.env_wait_seconds += loop.time() - start

    def location(self, env_id: int) -> str:
        return self._workers.location(env_id)

    async def start(self) -> None:
        await self._workers.start()

    async def stop(self) -> None:
        await self._workers.stop()
