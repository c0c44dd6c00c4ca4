"""`Workers`: worlds behind one asynchronous interface, and the simplest of them: worlds in this process."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium

from agentrl_jax.deadlines import Deadlines
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.messages import Message
from agentrl_jax.worker import LARGEST, Worlds, answer

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
    """Sends requests to worlds; all pools answer the same. A world's requests are answered in order, one at a time."""

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        """The answer; EnvironmentFailure where the world raised, talked nonsense, died or took longer than `within` seconds."""
        ...

    def where(self, world: int) -> str:
        """In words, where the world lives."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class World:
    """One environment in some worker."""

    _handles = itertools.count()

    def __init__(self, workers: Workers, task: Task, deadlines: Deadlines | None = None) -> None:
        self.task, self.deadlines = task, deadlines or Deadlines()
        self._workers, self._handle = workers, next(World._handles)

    async def reset(self) -> tuple[tuple[Message, ...], dict[str, Any]]:
        t = self.task
        opening, info = await self._request(
            "reset", self.deadlines.turn, name=importable(t.environment), options=t.options, seed=t.seed, reset_options=t.reset_options
        )
        return _messages(opening), info

    async def step(self, action: Message) -> StepResult:
        observation, *rest = await self._request("step", self.deadlines.turn, action=action.to_dict())
        return _messages(observation), *rest

    async def play(self, player: str, seed: int) -> list[tuple[str, StepResult]]:
        """The rest of the episode, by a scripted player of the environment."""
        turns = await self._request("play", self.deadlines.episode, player=player, seed=seed)
        return [(action, (_messages(observation), *rest)) for action, observation, *rest in turns]

    def close(self, keep: bool = True) -> None:
        """Give the environment back, without waiting; `keep=False` throws it away (it misbehaved)."""
        self._request("close", self.deadlines.turn, keep=keep).add_done_callback(forget)

    def where(self) -> str:
        return f"its world ({self._workers.where(self._handle)})"

    def _request(self, op: str, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        return self._workers.request(op, self._handle, within, **arguments)


def done(value: Any) -> "asyncio.Future[Any]":
    """What need not be waited for."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def forget(future: "asyncio.Future[Any]") -> None:
    """A callback for what nobody waits for."""
    if not future.cancelled():
        future.exception()  # seen, so that nobody complains that it never was


def _messages(wire: list[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(map(Message.from_dict, wire))


def importable(name: str) -> str:
    """`module:id` for a registered id, so that another process can make it too."""
    if ":" in name or name not in gymnasium.registry:
        return name
    entry = gymnasium.registry[name].entry_point
    module = entry.split(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", None)
    return f"{module}:{name}"


def settled(future: "asyncio.Future[Any]", reply: dict[str, Any]) -> None:
    """Hand a worker's reply to whoever still waits for it. Raises KeyError where it is no reply."""
    error: Exception | None = None
    if "user_error" in reply:
        error = UserError(reply["user_error"])
    elif "failure" in reply:
        error = EnvironmentFailure(reply["failure"], reply["kind"])
    value = None if error else reply["value"]
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


class Lane:
    """What one worker was asked and has not answered; the clock is on the request that it is at, and on no other."""

    def __init__(self, late: Callable[[float], None], at: Callable[[], tuple[int, float]] | None = None) -> None:
        """`late` is called with the deadline that the worker did not keep; `at` tells which request it is at and since when.

        Without `at` it is the first, from when the one before was answered.
        """
        self._late, self._at = late, at
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[Any], float]] = {}
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, within: float) -> "tuple[int, asyncio.Future[Any]]":
        """A new request's number and the future of its answer."""
        identity, future = next(self._ids), self._loop.create_future()
        self._waiting[identity] = future, within
        if len(self._waiting) == 1:
            self._next()
        return identity, future

    def settle(self, replies: Sequence[dict[str, Any]]) -> None:
        """Take replies. Raises KeyError, TypeError or ValueError where they are not those to the first requests."""
        if not replies:
            raise ValueError("this says nothing")
        for identity, reply in zip(list(itertools.islice(self._waiting, len(replies))), replies, strict=True):
            if reply["id"] != identity:
                raise ValueError("this was not asked")
            settled(self._waiting[identity][0], reply)
            del self._waiting[identity]
        if self._waiting:
            self._next()

    def fail(self, why: EnvironmentFailure, others: EnvironmentFailure) -> None:
        """The worker is gone: `why` is what the request that it was at hears."""
        if self._timer is not None:
            self._timer.cancel()
        guilty = self._now()[0] if self._waiting else None
        lost, self._waiting, self._timer = self._waiting, {}, None
        for identity, (future, _) in lost.items():
            if not future.done():
                future.set_exception(why if identity == guilty else others)

    def _now(self) -> tuple[int, float]:
        if self._at is not None and (at := self._at())[0] in self._waiting:
            return at
        return next(iter(self._waiting)), self._began

    def _next(self) -> None:
        """The worker turns to the first request now."""
        self._began = self._loop.time()
        self._arm(self._began + next(iter(self._waiting.values()))[1])

    def _arm(self, when: float) -> None:
        # One timer serves many requests: it fires now and then and looks, which is cheaper than one for each.
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waiting:
            identity, began = self._now()
            seconds = self._waiting[identity][1]
            if self._loop.time() < began + seconds:
                self._arm(began + seconds)
            else:
                self._late(seconds)


class InProcess:
    """Worlds in this process: for people who debug. Nothing can cut a world short here: its deadline is looked at when it is done."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._worlds, self._largest = Worlds(), largest

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        future, began = asyncio.get_running_loop().create_future(), time.monotonic()
        # Through JSON and back, so that a world is told here what it would be told elsewhere.
        reply = json.loads(answer(self._worlds, {"id": 0, "op": op, "world": world, **arguments}, self._largest))
        if time.monotonic() - began > within:
            future.set_exception(DeadlineExceeded(f"no answer from {self.where(world)} in {within:g} s"))
        else:
            settled(future, reply)
        return future

    def where(self, world: int) -> str:
        return "this process"

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self._worlds.stop()
