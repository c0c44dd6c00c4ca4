"""`Actors`: worlds on the nodes of a Ray cluster. Each actor is a pool of processes on its node, asked from afar.

What happens to a world happens in the pool there (processes.py), with its deadlines and its failures; here it is only decided where
worlds live, and what becomes of them when a node is gone: they are "lost", and played again on another one. Ray is imported on `start`.
"""

import asyncio
import importlib
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.processes import Processes
from agentrl_jax.worker import LARGEST
from agentrl_jax.workers import done, forget

BEAT = 2.0  # seconds between two questions whether an actor is there
GRACE = 10.0  # seconds that the actors get to end their processes
OBJECTS = 80 * 2**20  # bytes of Ray's store in a local cluster: no world's answer needs it


@dataclass
class ClusterConfig:
    """Where Ray places worlds: away from the accelerators, by a resource or a label that only other nodes have."""

    actors: int = 0  # each with `workers` processes and as many CPUs; 0: no Ray
    address: str = ""  # of a running cluster, such as auto or 10.0.0.2:6379; empty: one is started on this machine
    resources: dict[str, float] = field(default_factory=dict)  # that an actor takes of its node, such as {"environments": 1}
    labels: dict[str, str] = field(default_factory=dict)  # of its node, such as {"pool": "environments"} or {"pool": "!accelerators"}
    patience: float = 120.0  # seconds that the first actors are waited for
    silence: float = 30.0  # seconds without a sign of life after which a node counts as lost


class Site:
    """What runs on a node: a pool of processes. Errors travel as data, since they must be made anew over there."""

    def __init__(self, path: Sequence[str], arguments: dict[str, Any]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        self._arguments = arguments
        self._pool: Processes | None = None
        self._starting: asyncio.Future[tuple[Any, ...]] | None = None

    async def start(self) -> tuple[Any, ...]:
        """Where it is. Ray promises no order of calls: whichever is first starts the pool, once."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        return await self._starting

    async def _start(self) -> tuple[Any, ...]:
        try:
            self._pool = Processes(**self._arguments)
            await self._pool.start()
            return "value", f"{socket.gethostname()}, pid {os.getpid()}"
        except UserError as error:
            return "user", str(error)

    async def request(self, op: str, world: int, within: float, arguments: dict[str, Any]) -> tuple[Any, ...]:
        started = await self.start()
        if self._pool is None:
            return started
        try:
            return "value", await self._pool.request(op, world, within, **arguments)
        except UserError as error:
            return "user", str(error)
        except EnvironmentFailure as failure:
            return "failure", str(failure), failure.kind

    async def beat(self) -> None: ...

    async def stop(self) -> None:
        if self._pool is not None:
            await self._pool.stop()


class _Actor:
    """One actor seen from here, from its start until it is lost."""

    def __init__(self, number: int, handle: Any, config: ClusterConfig) -> None:
        self.number, self.handle, self._config = number, handle, config
        self.place = ""  # known once it has started
        self.lost = False
        self.worlds: set[int] = set()
        self._waiting: set[asyncio.Future[Any]] = set()
        self.starting = asyncio.ensure_future(self._start())
        self.starting.add_done_callback(forget)
        self.living = asyncio.ensure_future(self._live())

    @property
    def name(self) -> str:
        return f"actor {self.number}" + (f" on {self.place}" if self.place else ", which is not placed yet")

    async def _start(self) -> None:
        reply = await self._in_time(self.handle.start.remote(), self._config.patience)
        if reply[0] == "user":
            raise UserError(reply[1])
        self.place = reply[1]

    async def _live(self) -> None:
        try:
            await asyncio.wait([self.starting])
            self.starting.result()
            while True:
                await asyncio.sleep(BEAT)
                await self._in_time(self.handle.beat.remote(), self._config.silence)
        except Exception as error:
            self.lose(error)

    async def _in_time(self, reference: Any, seconds: float) -> Any:
        future = asyncio.wrap_future(reference.future())
        future.add_done_callback(forget)
        # The loop rests between two collections: what came meanwhile is looked at before the clock is.
        await asyncio.wait([future], timeout=seconds)
        if not future.done():
            future.cancel()
            raise TimeoutError(f"no sign of life in {seconds:g} s")
        return future.result()

    def request(self, op: str, world: int, within: float, arguments: dict[str, Any]) -> "asyncio.Future[Any]":
        answer = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        reply = asyncio.wrap_future(self.handle.request.remote(op, world, within, arguments).future())
        reply.add_done_callback(lambda reply: self._settle(answer, reply))
        return answer

    def _settle(self, answer: "asyncio.Future[Any]", reply: "asyncio.Future[Any]") -> None:
        self._waiting.discard(answer)
        if reply.cancelled() or answer.done():
            return forget(reply)
        error = reply.exception()
        if error is not None:
            self._waiting.add(answer)
            return self.lose(error)
        kind, *rest = reply.result()
        if kind == "value":
            answer.set_result(rest[0])
        elif kind == "user":
            answer.set_exception(UserError(rest[0]))
        else:
            message = f"{rest[0]} ({self.name})"
            answer.set_exception(DeadlineExceeded(message) if rest[1] == "deadline" else EnvironmentFailure(message, rest[1]))

    def lose(self, error: BaseException) -> None:
        """It is gone, and all that was asked of it."""
        self.lost = True
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        waiting, self._waiting = self._waiting, set()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(EnvironmentFailure(f"{self.name} was lost: {why}", "lost"))


class Actors:
    """Worlds with the actors of a Ray cluster; a lost one is replaced, and meanwhile its worlds go to the others."""

    def __init__(self, config: ClusterConfig, processes: int = 1, interpreter: str = "", memory: int = 0, largest: int = LARGEST) -> None:
        if config.actors < 1 or processes < 1:
            raise UserError("config.environment.cluster needs at least one actor with at least one worker process")
        if min(config.patience, config.silence) <= 0:
            raise UserError("config.environment.cluster.patience and silence are seconds above 0")
        self._config, self._processes = config, processes
        self._arguments = {"count": processes, "interpreter": interpreter, "memory": memory, "largest": largest}
        self._ray: Any = None
        self._mine = False  # whether it was this pool that began to use Ray
        self._actors: list[_Actor] = []
        self._homes: dict[int, _Actor] = {}

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        home = self._homes.get(world)
        if op == "close":
            self._leave(world)
        if op == "reset" and (home is None or home.lost):
            self._leave(world)
            home = self._homes[world] = self._best()
            home.worlds.add(world)
        if home is None or home.lost:
            if op == "close":
                return done(None)
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(EnvironmentFailure("the world is gone: its node was lost", "lost"))
            return failed
        return home.request(op, world, within, arguments)

    def _leave(self, world: int) -> None:
        home = self._homes.pop(world, None)
        if home is not None:
            home.worlds.discard(world)

    def _best(self) -> _Actor:
        """Who gets the next world: one that has started, and of those the one with the fewest."""
        for i, actor in enumerate(self._actors):
            if actor.lost:
                self._kill(actor)
                self._actors[i] = self._fresh(i)
        return min(self._actors, key=lambda actor: (not actor.place, len(actor.worlds)))

    def _fresh(self, i: int) -> _Actor:
        c = self._config
        kind = self._ray.remote(Site).options(
            num_cpus=self._processes, resources=c.resources, label_selector=c.labels, scheduling_strategy="SPREAD", max_concurrency=10_000
        )
        return _Actor(i + 1, kind.remote([folder for folder in sys.path if folder], self._arguments), c)

    def where(self, world: int) -> str:
        home = self._homes.get(world)
        return "a lost actor" if home is None else home.name

    async def start(self) -> None:
        self._ray = load()
        self._mine = not self._ray.is_initialized()
        if self._mine:
            connect(self._ray, self._config.address, self._config.actors * self._processes, self._config.resources, self._config.labels)
        self._actors = [self._fresh(i) for i in range(self._config.actors)]
        try:
            await asyncio.gather(*(actor.starting for actor in self._actors))
        except TimeoutError as error:
            c = self._config
            wanted = f"{self._processes} CPUs, resources {c.resources} and labels {c.labels}"
            raise UserError(
                f"no place for {c.actors} actors with {wanted} each was found in {c.patience:g} s: see `ray status`, or ask for less"
            ) from error

    async def stop(self) -> None:
        here = [actor for actor in self._actors if not actor.lost]
        for actor in self._actors:
            actor.living.cancel()
        endings = [asyncio.wrap_future(actor.handle.stop.remote().future()) for actor in here if actor.place]
        if endings:
            for ending in (await asyncio.wait(endings, timeout=GRACE))[0]:
                forget(ending)
        for actor in self._actors:
            actor.lose(RuntimeError("the pool was stopped"))
            self._kill(actor)
        self._actors, self._homes = [], {}
        if self._mine and self._ray.is_initialized():
            self._ray.shutdown()

    def _kill(self, actor: _Actor) -> None:
        actor.living.cancel()
        self._ray.kill(actor.handle)


def load() -> Any:
    """The module `ray`. Raises UserError where it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UserError("config.environment.cluster needs Ray: pip install 'agentrl_jax[ray]'") from error


def connect(ray: Any, address: str, cpus: int, resources: dict[str, float], labels: dict[str, str]) -> None:
    """Join the cluster at `address`, or start one on this machine that has what is asked for. Raises UserError where there is none."""
    try:
        if address:
            host, colon, port = address.rpartition("/")[2].rpartition(":")
            if colon:  # Ray itself would try for minutes
                socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
            ray.init(address=address, log_to_driver=False, logging_level="warning")
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            ray.init(
                address="local", num_cpus=cpus, num_gpus=0, object_store_memory=OBJECTS, include_dashboard=False, log_to_driver=False,
                resources={name: count * cpus for name, count in resources.items()}, logging_level="warning",
                labels={name: value for name, value in labels.items() if not value.startswith("!")},
            )  # fmt: skip
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(f"no Ray cluster can be reached at {address or 'this machine'}: {error}") from error
