"""`Runtime`: what strategies and algorithms act through: engines, workers, tasks side by side."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from agentrl_jax.engine import Engine
from agentrl_jax.episodes import Agent, play, watch
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, Group, Key, Trajectory
from agentrl_jax.workers import Task, Workers, World

T = TypeVar("T")


@runtime_checkable
class Strategy(Protocol):
    """How a task becomes a group of trajectories."""

    async def collect(self, task: Task, runtime: "Runtime", key: Key) -> Group:
        """`key` is (run, step, task)."""
        ...


class Runtime:
    """Named engines, named agents and environment workers, on one event loop of its own."""

    def __init__(self, engines: Mapping[str, Engine], agents: Mapping[str, Agent], workers: Workers, retries: int = 2) -> None:
        self.engines, self.agents = dict(engines), dict(agents)
        self.retries = retries
        self.failures = 0
        self._workers = workers
        self._loop = asyncio.new_event_loop()
        self._places = {name: asyncio.Semaphore(engine.places) for name, engine in self.engines.items()}
        self._scripted_places = asyncio.Semaphore(256)
        self._loop.run_until_complete(workers.start())

    def add(self, name: str, agent: Agent, engine: Engine) -> None:
        """A named agent, and the engine that it names."""
        self.agents[name], self.engines[agent.engine] = agent, engine
        self._places[agent.engine] = asyncio.Semaphore(engine.places)

    def run(self, work: Awaitable[T]) -> T:
        """Run a coroutine to its end on the runtime's loop."""

        async def wait() -> T:
            return await work

        return self._loop.run_until_complete(wait())

    def collect(self, strategy: Strategy, tasks: Sequence[Task], key: Key) -> list[Group]:
        """The groups of all tasks, played side by side, in the order of the tasks; `key` is (run, step)."""

        async def all_of_them() -> list[Group]:
            return await asyncio.gather(*(strategy.collect(task, self, (*key, i)) for i, task in enumerate(tasks)))

        return self.run(all_of_them())

    async def episode(self, task: Task, agent: str, key: Key, sample: int = 0) -> Trajectory | None:
        """One episode of a named agent; a failing world is replaced `retries` times, then the episode is None."""
        who = self.agents[agent]
        engine = self.engines[who.engine]
        async with self._places[who.engine]:
            return await self._retried(task, lambda world: play(world, task, who, engine, (*key, sample), sample))

    async def scripted(self, task: Task, player: str, seed: int, sample: int = 0) -> Trajectory | None:
        """One episode of a scripted player of the environment."""
        async with self._scripted_places:
            return await self._retried(task, lambda world: watch(world, task, player, seed, sample))

    async def _retried(self, task: Task, act: Callable[[World], Awaitable[Trajectory]]) -> Trajectory | None:
        for _ in range(self.retries + 1):
            world = World(self._workers, task)
            try:
                trajectory = await act(world)
            except EnvironmentFailure:
                self.failures += 1
                await world.close(keep=False)
            else:
                await world.close()
                return trajectory
        return None

    async def sample(self, agent: str, prompts: Sequence[np.ndarray], n: int, key: Key) -> list[list[Call]]:
        """`n` calls for every prompt, outside of any episode."""
        who = self.agents[agent]
        engine = self.engines[who.engine]

        async def one(i: int, j: int) -> Call:
            async with self._places[who.engine]:
                call = await asyncio.wrap_future(engine.submit(prompts[i], who.sampling, (*key, i, j)))
            engine.release(call)
            return call

        calls = await asyncio.gather(*itertools.starmap(one, itertools.product(range(len(prompts)), range(n))))
        return [calls[i * n : (i + 1) * n] for i in range(len(prompts))]

    def publish(self, params: Params, version: int, engine: str = "policy") -> None:
        self.engines[engine].publish(params, version)

    def close(self) -> None:
        """Stop engines and workers; leaves no process behind."""
        for engine in self.engines.values():
            engine.close()
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._stop(asyncio.all_tasks(self._loop)))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _stop(self, unfinished: set[asyncio.Task[Any]]) -> None:
        """Stop the workers; after an error or a second Ctrl-C there may be episodes left in the middle."""
        for task in unfinished:
            task.cancel()
        await self._workers.stop()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
