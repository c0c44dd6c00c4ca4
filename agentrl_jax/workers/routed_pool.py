"""`RoutedPool`: environments in several pools, one for each interpreter."""

import asyncio
from collections.abc import Mapping
from typing import Any

from agentrl_jax.workers.pool import WorkerPool, completed_future


class RoutedPool:
    """Sends an environment's requests to the pool of its id, or else to the one for all others."""

    def __init__(self, others: WorkerPool, pools: Mapping[str, WorkerPool]) -> None:
        """Starts nothing.

        Args:
            others: of the environments that `pools` does not name.
            pools: by the environment's name, `module:id`; a pool may have several.
        """
        self._others, self._by_id = others, dict(pools)
        self._of_environment: dict[int, WorkerPool] = {}  # from its first reset until it is closed

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        if op == "reset":
            pool = self._by_id.get(arguments["name"], self._others)
            self._of_environment[env_id] = pool
        elif op == "close":
            pool = self._of_environment.pop(env_id, None)
            if pool is None:
                return completed_future(None)
        else:
            pool = self._of_environment.get(env_id, self._others)
        return pool.request(op, env_id, timeout, **arguments)

    def location(self, env_id: int) -> str:
        return self._of_environment.get(env_id, self._others).location(env_id)

    def _pools(self) -> list[WorkerPool]:
        return list(dict.fromkeys([self._others, *self._by_id.values()]))

    async def start(self) -> None:
        await asyncio.gather(*(pool.start() for pool in self._pools()))

    async def stop(self) -> None:
        await asyncio.gather(*(pool.stop() for pool in self._pools()))
