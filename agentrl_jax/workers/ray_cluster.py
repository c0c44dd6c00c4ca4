"""A Ray cluster: `import_ray`, `connect`, and `RayNode`, the actor with the processes of a node."""

import asyncio
import importlib
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.workers.process_pool import ProcessPool

OBJECT_STORE_BYTES = 80 * 2**20  # of a local cluster: replies of environments do not use it


class RayNode:
    """The actor on a node, with its pool of processes; exceptions are returned as data."""

    def __init__(self, path: Sequence[str], pool_arguments: dict[str, Any]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        self._pool_arguments = pool_arguments
        self._pool: ProcessPool | None = None
        self._start_task: asyncio.Future[tuple[Any, ...]] | None = None

    async def start(self) -> tuple[Any, ...]:
        """Start the pool, once: Ray guarantees no order of calls. Returns the location."""
        if self._start_task is None:
            self._start_task = asyncio.ensure_future(self._start())
        return await self._start_task

    async def _start(self) -> tuple[Any, ...]:
        try:
            self._pool = ProcessPool(**self._pool_arguments)
            await self._pool.start()
            return "value", f"{socket.gethostname()}, pid {os.getpid()}"
        except UserError as error:
            return "user", str(error)

    async def request(
        self, op: str, env_id: int, timeout: float, arguments: dict[str, Any]
    ) -> tuple[Any, ...]:
        started = await self.start()
        if self._pool is None:
            return started
        try:
            return "value", await self._pool.request(op, env_id, timeout, **arguments)
        except UserError as error:
            return "user", str(error)
        except EnvironmentFailure as failure:
            return "failure", str(failure), failure.kind

    async def heartbeat(self) -> None: ...

    async def stop(self) -> None:
        if self._pool is not None:
            await self._pool.stop()


def import_ray() -> Any:
    """The module `ray`. Raises UserError if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError(
            "config.environment.cluster needs Ray: pip install 'agentrl_jax[ray]'"
        ) from error


def connect(
    ray: Any, address: str, cpus: int, resources: dict[str, float], labels: dict[str, str]
) -> None:
    """Join the cluster at `address`, or start one on this machine with the given resources.

    Raises:
        UserError: no cluster can be reached.
    """
    try:
        if address:
            host, colon, port = address.rpartition("/")[2].rpartition(":")
            if colon:  # check first: Ray itself would retry for minutes
                socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
            ray.init(address=address, log_to_driver=False, logging_level="warning")
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(
                address="local",
                num_cpus=cpus,
                num_gpus=0,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                resources={name: count * cpus for name, count in resources.items()},
                logging_level="warning",
                labels={name: value for name, value in labels.items() if not value.startswith("!")},
            )
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"no Ray cluster can be reached at {address or 'this machine'}: {error}"
        ) from error
