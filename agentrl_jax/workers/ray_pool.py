"""`RayPool`: environments on the nodes of a Ray cluster, in one actor with a process pool per node.

The remote pool (process_pool.py) handles timeouts and failures of environments. This module only
decides where environments are placed, and what happens when a node is gone: its environments are
"lost", and their episodes are played again on another node. Ray is imported on `start`.
"""

import asyncio
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.external import external
from agentrl_jax.sandbox.worker_confinement import WorkerSandbox
from agentrl_jax.workers.observation_limit import DEFAULT_LIMIT, ObservationLimit
from agentrl_jax.workers.pool import completed_future, ignore_result
from agentrl_jax.workers.ray_cluster import RayNode, connect, import_ray
from agentrl_jax.workers.server import MAX_REPLY_BYTES

HEARTBEAT_INTERVAL = 2.0  # seconds
SHUTDOWN_GRACE = 10.0  # seconds for the actors to end their processes


@dataclass
class ClusterConfig:
    """Where Ray places environments.

    A resource or a label that only other nodes have keeps them off those with accelerators.
    """

    actors: int = 0  # each with `workers` processes and as many CPUs; 0: no Ray
    # Of a running cluster, such as auto or 10.0.0.2:6379; empty: one is started on this machine.
    address: str = field(default="", metadata=external("server"))
    # Resources that an actor takes of its node, such as {"environments": 1}.
    resources: dict[str, float] = field(default_factory=dict)
    # Labels of its node, such as {"pool": "environments"} or {"pool": "!accelerators"}.
    labels: dict[str, str] = field(default_factory=dict)
    start_timeout: float = 120.0  # seconds for the first actors to start
    heartbeat_timeout: float = 30.0  # seconds without a heartbeat after which a node is lost


class _Actor:
    """The driver's view of an actor, from its start until it is lost."""

    def __init__(self, number: int, handle: Any, config: ClusterConfig) -> None:
        self.number, self.handle, self._config = number, handle, config
        self.location = ""  # known once it has started
        self.is_lost = False
        self.env_ids: set[int] = set()
        self._pending: set[asyncio.Future[Any]] = set()
        self.start_task = asyncio.ensure_future(self._start())
        self.start_task.add_done_callback(ignore_result)
        self.heartbeat_task = asyncio.ensure_future(self._monitor_heartbeat())

    @property
    def name(self) -> str:
        return f"actor {self.number}" + (
            f" on {self.location}" if self.location else ", which is not placed yet"
        )

    async def _start(self) -> None:
        reply = await self._await_with_timeout(
            self.handle.start.remote(), self._config.start_timeout
        )
        if reply[0] == "user":
            raise UserError(reply[1])
        self.location = reply[1]

    async def _monitor_heartbeat(self) -> None:
        try:
            await asyncio.wait([self.start_task])
            self.start_task.result()
            while True:
                await asyncio.sleep(HEARTBEAT_INTERVAL)
                await self._await_with_timeout(
                    self.handle.heartbeat.remote(), self._config.heartbeat_timeout
                )
        except Exception as error:
            self.mark_lost(error)

    async def _await_with_timeout(self, reference: Any, timeout: float) -> Any:
        future = asyncio.wrap_future(reference.future())
        future.add_done_callback(ignore_result)
        # The event loop may have been paused: `wait` checks for a reply before the timeout.
        await asyncio.wait([future], timeout=timeout)
        if not future.done():
            future.cancel()
            raise TimeoutError(f"no heartbeat in {timeout:g} s")
        return future.result()

    def request(
        self, op: str, env_id: int, timeout: float, arguments: dict[str, Any]
    ) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        self._pending.add(future)
        reply = asyncio.wrap_future(
            self.handle.request.remote(op, env_id, timeout, arguments).future()
        )
        reply.add_done_callback(lambda reply: self._resolve(future, reply))
        return future

    def _resolve(self, future: "asyncio.Future[Any]", reply: "asyncio.Future[Any]") -> None:
        self._pending.discard(future)
        if reply.cancelled() or future.done():
            return ignore_result(reply)
        error = reply.exception()
        if error is not None:
            self._pending.add(future)
            return self.mark_lost(error)
        match reply.result():
            case "value", value:
                future.set_result(value)
            case "user", text:
                future.set_exception(UserError(text))
            case _, text, "deadline":
                future.set_exception(DeadlineExceeded(f"{text} ({self.name})"))
            case _, text, kind:
                future.set_exception(EnvironmentFailure(f"{text} ({self.name})", kind))

    def mark_lost(self, error: BaseException) -> None:
        """The actor is gone: its pending requests fail."""
        self.is_lost = True
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        pending, self._pending = self._pending, set()
        for future in pending:
            if not future.done():
                future.set_exception(EnvironmentFailure(f"{self.name} was lost: {reason}", "lost"))


class RayPool:
    """Environments in the actors of a Ray cluster.

    A lost actor is replaced; until then the others take its environments.
    """

    def __init__(
        self,
        config: ClusterConfig,
        processes_per_actor: int = 1,
        interpreter: str = "",
        memory_limit: int = 0,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        observations: ObservationLimit = DEFAULT_LIMIT,
        pass_variables: Collection[str] = (),
        sandbox: WorkerSandbox | None = None,
    ) -> None:
        """Checks the arguments; `start` starts the actors.

        Args:
            config: the cluster, and where the actors are placed.
            processes_per_actor: processes of the pool on each node.
            interpreter: see `ProcessPool`.
            memory_limit: see `ProcessPool`.
            max_reply_bytes: see `ProcessPool`.
            observations: see `ProcessPool`.
            pass_variables: see `ProcessPool`; those of the node.
            sandbox: see `ProcessPool`.

        Raises:
            UserError: there are no actors or processes, or a timeout is not positive.
        """
        if config.actors < 1 or processes_per_actor < 1:
            raise UserError(
                "config.environment.cluster needs at least one actor with at least one worker "
                "process"
            )
        if min(config.start_timeout, config.heartbeat_timeout) <= 0:
            raise UserError(
                "config.environment.cluster.start_timeout and heartbeat_timeout are seconds above 0"
            )
        self._config, self._processes_per_actor = config, processes_per_actor
        self._pool_arguments = {
            "count": processes_per_actor,
            "interpreter": interpreter,
            "memory_limit": memory_limit,
            "max_reply_bytes": max_reply_bytes,
            "observations": observations,
            "pass_variables": tuple(pass_variables),
            "sandbox": sandbox,
        }
        self._ray: Any = None
        self._owns_ray = False  # whether this pool has initialized Ray
        self._actors: list[_Actor] = []
        self._actor_of_env: dict[int, _Actor] = {}

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        actor = self._actor_of_env.get(env_id)
        if op == "close":
            self._release_env(env_id)
        if op == "reset" and (actor is None or actor.is_lost):
            self._release_env(env_id)
            actor = self._actor_of_env[env_id] = self._least_loaded()
            actor.env_ids.add(env_id)
        if actor is None or actor.is_lost:
            if op == "close":
                return completed_future(None)
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(
                EnvironmentFailure("the environment is gone: its node was lost", "lost")
            )
            return failed
        return actor.request(op, env_id, timeout, arguments)

    def _release_env(self, env_id: int) -> None:
        actor = self._actor_of_env.pop(env_id, None)
        if actor is not None:
            actor.env_ids.discard(env_id)

    def _least_loaded(self) -> _Actor:
        """The actor for the next environment: a started one before others, then by load."""
        for i, actor in enumerate(self._actors):
            if actor.is_lost:
                self._kill(actor)
                self._actors[i] = self._spawn(i)
        return min(self._actors, key=lambda actor: (not actor.location, len(actor.env_ids)))

    def _spawn(self, i: int) -> _Actor:
        c = self._config
        actor_class = self._ray.remote(RayNode).options(
            num_cpus=self._processes_per_actor,
            resources=c.resources,
            label_selector=c.labels,
            scheduling_strategy="SPREAD",
            max_concurrency=10_000,
        )
        path = [folder for folder in sys.path if folder]
        return _Actor(i + 1, actor_class.remote(path, self._pool_arguments), c)

    def location(self, env_id: int) -> str:
        actor = self._actor_of_env.get(env_id)
        return "a lost actor" if actor is None else actor.name

    async def start(self) -> None:
        self._ray = import_ray()
        self._owns_ray = not self._ray.is_initialized()
        if self._owns_ray:
            connect(
                self._ray,
                self._config.address,
                self._config.actors * self._processes_per_actor,
                self._config.resources,
                self._config.labels,
            )
        self._actors = [self._spawn(i) for i in range(self._config.actors)]
        try:
            await asyncio.gather(*(actor.start_task for actor in self._actors))
        except TimeoutError as error:
            c = self._config
            raise UserError(
                f"no nodes for {c.actors} actors with {self._processes_per_actor} CPUs, resources "
                f"{c.resources} and labels {c.labels} each were found in {c.start_timeout:g} s: "
                "see `ray status`, or request less"
            ) from error

    async def stop(self) -> None:
        for actor in self._actors:
            actor.heartbeat_task.cancel()
        endings = [
            asyncio.wrap_future(actor.handle.stop.remote().future())
            for actor in self._actors
            if actor.location and not actor.is_lost
        ]
        if endings:
            for ending in (await asyncio.wait(endings, timeout=SHUTDOWN_GRACE))[0]:
                ignore_result(ending)
        for actor in self._actors:
            actor.mark_lost(RuntimeError("the pool was stopped"))
            self._kill(actor)
        self._actors, self._actor_of_env = [], {}
        if self._owns_ray and self._ray.is_initialized():
            self._ray.shutdown()

    def _kill(self, actor: _Actor) -> None:
        actor.heartbeat_task.cancel()
        self._ray.kill(actor.handle)
