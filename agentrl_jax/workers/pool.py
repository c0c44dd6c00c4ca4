"""`WorkerPool`: environments behind one asynchronous interface; `InlinePool`: in this process."""

import asyncio
import itertools
import json
import time
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium

from agentrl_jax.clock import epoch_seconds
from agentrl_jax.errors import DeadlineExceeded
from agentrl_jax.messages import Message, action_from_json
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import TurnTime
from agentrl_jax.workers.observation_limit import DEFAULT_LIMIT, ObservationLimit
from agentrl_jax.workers.request_queue import resolve_future
from agentrl_jax.workers.server import MAX_REPLY_BYTES, EnvServer, handle_request

StepResult = tuple[tuple[Message, ...], float, bool, bool, dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """An environment, the options it is made and reset with, and its seed."""

    environment: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)
    reset_options: dict[str, Any] | None = None
    group: int = 0
    label: str = ""  # of the environment in a mixture; empty: its id
    record: str = ""  # names the task where its seed does not: a record of a task file

    @property
    def name(self) -> str:
        """The environment's label, and what the task is among those of this environment."""
        return f"{self.label or self.environment}#{self.record or self.seed}"


@runtime_checkable
class WorkerPool(Protocol):
    """Sends requests to environments; each environment answers its requests one at a time."""

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        """Send a request.

        The future raises EnvironmentFailure if the environment raised, returned something invalid,
        died, or took longer than `timeout`.

        Args:
            op: "reset", "step", "actions", "play" or "close".
            env_id: the environment; a "reset" creates it.
            timeout: seconds, for each turn of a "play".
            arguments: those of `EnvServer`'s method.
        """
        ...

    def location(self, env_id: int) -> str:
        """A description of where the environment runs."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class EnvHandle:
    """One environment in some worker.

    `end` is whether its last reply terminated, or truncated, and `rewards` those of all its replies
    since it was reset.
    """

    _id_counter = itertools.count()

    def __init__(self, workers: WorkerPool, task: Task, timeouts: Timeouts | None = None) -> None:
        self.task, self.timeouts, self.end = task, timeouts or Timeouts(), (False, False)
        self.step_time: TurnTime | None = None  # when it was last stepped
        self.rewards: list[float] = []
        self._worker_pool, self._env_id = workers, next(EnvHandle._id_counter)

    async def reset(self) -> tuple[tuple[Message, ...], dict[str, Any]]:
        t, self.rewards = self.task, []
        opening, info = await self._worker_pool.request(
            "reset",
            self._env_id,
            self.timeouts.turn,
            name=importable_env_name(t.environment),
            options=t.options,
            seed=t.seed,
            reset_options=t.reset_options,
        )
        return _parse_messages(opening), info

    async def step(self, action: Message) -> StepResult:
        start = epoch_seconds()
        observation, *outcome = await self._worker_pool.request(
            "step", self._env_id, self.timeouts.turn, action=action.to_dict()
        )
        self.step_time = TurnTime(start, epoch_seconds())
        self.end = (outcome[1], outcome[2])
        self.rewards.append(outcome[0])
        return _parse_messages(observation), *outcome

    async def actions(self) -> tuple[str, ...] | None:
        """The legal actions; None if the environment does not list them."""
        actions = await self._worker_pool.request("actions", self._env_id, self.timeouts.turn)
        return None if actions is None else tuple(actions)

    async def play_scripted(self, player: str, seed: int) -> list[tuple[Message, StepResult]]:
        """Play the episode to its end with a scripted policy of the environment."""
        turns = await self._worker_pool.request(
            "play",
            self._env_id,
            self.timeouts.turn,
            player=player,
            seed=seed,
            seconds=self.timeouts.episode,
        )
        return [
            (action_from_json(action), (_parse_messages(observation), *outcome))
            for action, observation, *outcome in turns
        ]

    def close(self, reuse: bool = True) -> None:
        """Return the environment to its pool, without waiting; `reuse=False` discards it."""
        self._worker_pool.request(
            "close", self._env_id, self.timeouts.turn, keep=reuse
        ).add_done_callback(ignore_result)

    def location(self) -> str:
        return f"its environment ({self._worker_pool.location(self._env_id)})"


def completed_future(value: Any) -> "asyncio.Future[Any]":
    """A future that is already done."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def ignore_result(future: "asyncio.Future[Any]") -> None:
    """A done callback for a future whose result is not needed."""
    if not future.cancelled():
        future.exception()  # retrieved, or asyncio would log it


def _parse_messages(data: list[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message.from_dict(m).replace(raw_text=None) for m in data)  # no policy's text


def importable_env_name(name: str) -> str:
    """`module:id` for a registered id, so that another process can make it too."""
    if ":" in name or name not in gymnasium.registry:
        return name
    entry = gymnasium.registry[name].entry_point
    module = entry.split(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", None)
    return f"{module}:{name}"


class InlinePool:
    """Environments in this process, for debugging.

    A request cannot be interrupted here: its timeout is checked when it is done.
    """

    def __init__(
        self,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        observations: ObservationLimit = DEFAULT_LIMIT,
    ) -> None:
        self._env_server = EnvServer(self._on_turn, observations)
        self._max_reply_bytes = max_reply_bytes
        self._turn_start, self._longest_turn = 0.0, 0.0

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        future = asyncio.get_running_loop().create_future()
        self._turn_start, self._longest_turn = time.monotonic(), 0.0
        # Through JSON and back, so that environments get the same data as in other pools.
        reply = json.loads(
            handle_request(
                self._env_server,
                {"id": 0, "op": op, "env_id": env_id, **arguments},
                self._max_reply_bytes,
            )
        )
        self._on_turn()
        if self._longest_turn > timeout:
            future.set_exception(
                DeadlineExceeded(f"no answer from {self.location(env_id)} in {timeout:g} s")
            )
        else:
            resolve_future(future, reply)
        return future

    def _on_turn(self) -> None:
        now = time.monotonic()
        self._turn_start, self._longest_turn = now, max(self._longest_turn, now - self._turn_start)

    def location(self, env_id: int) -> str:
        return "this process"

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self._env_server.stop()
