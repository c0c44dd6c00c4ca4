"""Environment workers: worlds behind one asynchronous interface, in this process or in processes of their own."""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import Message
from agentrl_jax.worker import Worlds, answer

StepResult = tuple[tuple[Message, ...], float, bool, bool, dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """What an episode is about: an environment, how it is made and reset, and the seed of its world."""

    environment: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)
    reset_options: dict[str, Any] | None = None
    group: int = 0

    @property
    def name(self) -> str:
        return f"{self.environment}#{self.seed}"


@runtime_checkable
class Workers(Protocol):
    """Sends requests to worlds. Awaiting raises EnvironmentFailure where a world raised, died or ran past its deadline."""

    def request(self, op: str, world: int, **arguments: Any) -> Awaitable[Any]: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class World:
    """One environment in some worker."""

    _handles = itertools.count()

    def __init__(self, workers: Workers, task: Task) -> None:
        self._workers, self._task, self._handle = workers, task, next(World._handles)

    async def reset(self) -> tuple[tuple[Message, ...], dict[str, Any]]:
        t = self._task
        opening, info = await self._workers.request(
            "reset", self._handle, name=importable(t.environment), options=t.options, seed=t.seed, reset_options=t.reset_options
        )
        return _messages(opening), info

    async def step(self, action: Message) -> StepResult:
        observation, *rest = await self._workers.request("step", self._handle, action=action.to_dict())
        return _messages(observation), *rest

    async def play(self, player: str, seed: int) -> list[tuple[str, StepResult]]:
        """The rest of the episode, by a scripted player of the environment."""
        turns = await self._workers.request("play", self._handle, player=player, seed=seed)
        return [(action, (_messages(observation), *rest)) for action, observation, *rest in turns]

    async def close(self, keep: bool = True) -> None:
        """Give the environment back; `keep=False` throws it away (it misbehaved)."""
        with contextlib.suppress(EnvironmentFailure):
            await self._workers.request("close", self._handle, keep=keep)


def _messages(wire: list[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(map(Message.from_dict, wire))


def importable(name: str) -> str:
    """`module:id` for a registered id, so that another process can make it too."""
    if ":" in name or name not in gymnasium.registry:
        return name
    entry = gymnasium.registry[name].entry_point
    module = entry.split(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", None)
    return f"{module}:{name}"


def _value(reply: dict[str, Any]) -> Any:
    if "user_error" in reply:
        raise UserError(reply["user_error"])
    if "failure" in reply:
        raise EnvironmentFailure(reply["failure"])
    return reply["value"]


class InProcess:
    """Worlds in this process: for people who debug, and for environments that other processes cannot import."""

    def __init__(self) -> None:
        self._worlds = Worlds()

    async def request(self, op: str, world: int, **arguments: Any) -> Any:
        return _value(answer(self._worlds, {"id": 0, "op": op, "world": world, **arguments}))

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class _Process:
    """One worker process. At most one batch of requests is on its way; what comes meanwhile goes with the next."""

    def __init__(self, command: list[str], deadline: float) -> None:
        self._command, self._deadline = command, deadline
        self._ids = itertools.count()
        self._next: list[dict[str, Any]] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._sent: set[int] = set()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._flushing = False
        self._late = False

    async def start(self) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**27, env=environment
        )
        self._sent, self._late = set(), False
        self._reader = asyncio.create_task(self._read())

    def request(self, **fields: Any) -> "asyncio.Future[Any]":
        identity = next(self._ids)
        future = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        self._next.append({"id": identity, **fields})
        if not self._flushing and not self._sent:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        return future

    def _flush(self) -> None:
        self._flushing = False
        if not self._next or self._sent or self._starting:
            return
        if self._process is None:
            self._starting = asyncio.create_task(self._restart())
            return
        assert self._process.stdin is not None
        batch, self._next = self._next, []
        self._sent = {request["id"] for request in batch}
        self._process.stdin.write(json.dumps(batch).encode() + b"\n")
        self._timer = asyncio.get_running_loop().call_later(self._deadline, self._expire)

    async def _restart(self) -> None:
        await self.start()
        self._starting = None
        self._flush()

    def _expire(self) -> None:
        self._late = True
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        # A worker that dies may leave half a line; what is no reply counts as a death too.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            while line := await self._process.stdout.readline():
                self._settle(json.loads(line))
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        if self._timer:
            self._timer.cancel()
        message = f"no answer from an environment worker in {self._deadline} s" if self._late else "an environment worker died"
        error = DeadlineExceeded(message) if self._late else EnvironmentFailure(message)
        lost, self._waiting, self._next, self._sent, self._process = self._waiting, {}, [], set(), None
        for future in lost.values():
            if not future.done():
                future.set_exception(error)

    def _settle(self, replies: list[dict[str, Any]]) -> None:
        if self._timer is None or {reply["id"] for reply in replies} != self._sent:
            raise ValueError("these are not the replies that were asked for")
        self._timer.cancel()
        self._sent = set()
        for reply in replies:
            future = self._waiting.pop(reply["id"])
            if future.done():
                continue
            try:
                future.set_result(_value(reply))
            except Exception as error:
                future.set_exception(error)
        self._flush()

    async def stop(self) -> None:
        for task in (self._reader, self._starting):
            if task:
                task.cancel()
        if self._timer:
            self._timer.cancel()
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            transport = getattr(self._process, "_transport", None)
            if transport:
                transport.close()


class Processes:
    """Worlds in `count` processes of their own; a process that dies or is late is replaced and its requests fail."""

    def __init__(self, count: int, deadline: float = 60.0, command: list[str] | None = None) -> None:
        if count < 1:
            raise UserError(f"workers need at least one process, not {count}; 0 in the config means this process")
        self._processes = [_Process(command or [sys.executable, "-m", "agentrl_jax.worker"], deadline) for _ in range(count)]

    def request(self, op: str, world: int, **arguments: Any) -> Awaitable[Any]:
        return self._processes[world % len(self._processes)].request(op=op, world=world, **arguments)

    async def start(self) -> None:
        await asyncio.gather(*(process.start() for process in self._processes))

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._processes))
