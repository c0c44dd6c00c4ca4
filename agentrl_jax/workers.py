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
        """The answer; EnvironmentFailure where the world raised, talked nonsense, died or took longer than `within` seconds a turn."""
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
        opening, info = await self._workers.request(
            "reset",
            self._handle,
            self.deadlines.turn,
            name=importable(t.environment),
            options=t.options,
            seed=t.seed,
            reset_options=t.reset_options,
        )
        return _messages(opening), info

    async def step(self, action: Message) -> StepResult:
        observation, *rest = await self._workers.request("step", self._handle, self.deadlines.turn, action=action.to_dict())
        return _messages(observation), *rest

    async def actions(self) -> tuple[str, ...] | None:
        """What may be played now; None where the world does not say."""
        named = await self._workers.request("actions", self._handle, self.deadlines.turn)
        return None if named is None else tuple(named)

    async def play(self, player: str, seed: int) -> list[tuple[str, StepResult]]:
        """The rest of the episode, by a scripted player of the environment."""
        turns = await self._workers.request(
            "play", self._handle, self.deadlines.turn, player=player, seed=seed, seconds=self.deadlines.episode
        )
        return [(action, (_messages(observation), *rest)) for action, observation, *rest in turns]

    def close(self, keep: bool = True) -> None:
        """Give the environment back, without waiting; `keep=False` throws it away (it misbehaved)."""
        self._workers.request("close", self._handle, self.deadlines.turn, keep=keep).add_done_callback(forget)

    def where(self) -> str:
        return f"its world ({self._workers.where(self._handle)})"


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
    if "value" in reply:
        if not future.done():
            future.set_result(reply["value"])
        return
    user = "user_error" in reply
    error = UserError(reply["user_error"]) if user else EnvironmentFailure(reply["failure"], reply["kind"])
    if not future.done():
        future.set_exception(error)


class Lane:
    """What one worker was asked and has not answered; the clock is on the request that it is at, and on no other."""

    def __init__(self, late: Callable[[float], None], at: Callable[[], tuple[int, float]]) -> None:
        """`late` is called with the deadline that the worker did not keep; `at` tells which request it is at and since when."""
        self._late, self._at = late, at
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count()
        self._waiting: dict[int, tuple[asyncio.Future[Any], float, int]] = {}
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, within: float, world: int) -> "tuple[int, asyncio.Future[Any]]":
        """A new request's number and the future of its answer."""
        identity, future = next(self._ids), self._loop.create_future()
        self._waiting[identity] = future, within, world
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
        for identity, (future, _, _) in lost.items():
            if not future.done():
                future.set_exception(why if identity == guilty else others)

    def busy_elsewhere(self, world: int) -> bool:
        """Whether the worker is at work, but on another world; other threads may ask too."""
        request = self._waiting.get(self._at()[0])
        return request is not None and request[2] != world

    def _now(self) -> tuple[int, float]:
        at = self._at()
        return at if at[0] in self._waiting else (next(iter(self._waiting)), self._began)

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
        self._worlds, self._largest = Worlds(self._tick), largest
        self._since, self._slowest = 0.0, 0.0

    def request(self, op: str, world: int, within: float, **arguments: Any) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        self._since, self._slowest = time.monotonic(), 0.0
        # Through JSON and back, so that a world is told here what it would be told elsewhere.
        reply = json.loads(answer(self._worlds, {"id": 0, "op": op, "world": world, **arguments}, self._largest))
        self._tick()
        if self._slowest > within:
            future.set_exception(DeadlineExceeded(f"no answer from {self.where(world)} in {within:g} s"))
        else:
            settled(future, reply)
        return future

    def _tick(self) -> None:
        now = time.monotonic()
        self._since, self._slowest = now, max(self._slowest, now - self._since)

    def where(self, world: int) -> str:
        return "this process"

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self._worlds.stop()
