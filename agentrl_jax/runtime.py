"""`Runtime`: what strategies and algorithms act through: engines, workers, tasks side by side."""

import asyncio
import copy
import functools
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from agentrl_jax.deadlines import Deadlines, within
from agentrl_jax.engine import Engine
from agentrl_jax.episodes import After, Prefix, play, scripted
from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure
from agentrl_jax.failures import Failures
from agentrl_jax.hosts import Hosts
from agentrl_jax.matches import play_match
from agentrl_jax.policy import Params
from agentrl_jax.service import Service, never_begun
from agentrl_jax.speaking import Agent, Speaker, Watch, sampled, unwatched
from agentrl_jax.trajectories import Call, Episode, Group, Key, Trajectory
from agentrl_jax.watchdog import Watchdog
from agentrl_jax.workers import Task, Workers, World

T = TypeVar("T")
LOSSES = 20  # times that an episode may lose its world on another world's account; these are no retries


@runtime_checkable
class Strategy(Protocol):
    """How a task becomes a group of trajectories."""

    async def collect(self, task: Task, runtime: "Runtime", key: Key) -> Group:
        """`key` is (run, step, task)."""
        ...


class _Group:
    """When the group at work must be done: its clock starts with its first episode."""

    def __init__(self) -> None:
        self.ends: float | None = None

    def end(self, seconds: float) -> float:
        if self.ends is None:
            self.ends = asyncio.get_running_loop().time() + seconds
        return self.ends


_GROUP: ContextVar[_Group] = ContextVar("_GROUP")


class Runtime:
    """Named engines, named agents and environment workers, on one event loop of its own."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        agents: Mapping[str, Agent],
        workers: Workers,
        retries: int = 2,
        deadlines: Deadlines | None = None,
        say: Callable[[str], None] | None = None,
        hosts: Hosts | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """`say` is told who has waited for long and what went wrong for the first time; without it nobody watches.

        Of several `hosts` each has its own runtime, which plays its share of the tasks.
        """
        self.hosts = hosts or Hosts()
        self.engines, self.agents = dict(engines), dict(agents)
        self.retries, self.deadlines = retries, (deadlines or Deadlines()).check()
        self.failures = Failures(say)
        self._told: tuple[After, ...] = ()
        self._workers = workers
        self.loop = loop or asyncio.new_event_loop()
        self._service: Service | None = None
        self.versions: dict[str, int] = {}  # that were published last, by engine
        self._places = {name: asyncio.Semaphore(engine.places) for name, engine in self.engines.items()}
        self._scripted_places = asyncio.Semaphore(256)
        self._seating = asyncio.Lock()
        self.followers: list[Callable[[Params, int, str], None]] = []  # told of all weights that are published, and for which engine
        self._watchdog: Watchdog | None = None
        try:
            _finish(self.loop, workers.start())
        except BaseException:
            self.close()
            raise
        if say is not None:
            self._watchdog = Watchdog(self.deadlines.watch, say)

    def add(self, name: str, agent: Agent, engine: Engine) -> None:
        """A named agent, and the engine that it names."""
        self.agents[name], self.engines[agent.engine] = agent, engine
        self._places[agent.engine] = asyncio.Semaphore(engine.places)

    def under(self, agents: Mapping[str, Agent] | None = None, after: After | None = None) -> "Runtime":
        """This runtime as a strategy may give it to another: some names stand for other agents, `after` is told of all episodes' turns."""
        other = copy.copy(self)
        other.agents = {**self.agents, **(agents or {})}
        other._told = (*self._told, *([after] if after else []))
        return other

    def run(self, work: Awaitable[T]) -> T:
        """Run a coroutine to its end on the runtime's loop."""

        async def wait() -> T:
            return await work

        if self._service is None:
            return _finish(self.loop, wait())
        try:
            return self._service.run(wait(), self.deadlines.hosts)
        except BaseException:
            never_begun(work)
            raise

    def serve(self) -> None:
        """From now on the event loop runs in a thread of its own, so that episodes go on between calls."""
        self._service = self._service or Service(self.loop)

    def soon(self, act: Callable[..., Any], *arguments: Any) -> None:
        """Have the event loop call something; from any thread."""
        self.loop.call_soon_threadsafe(act, *arguments)

    def at(self, who: str, what: Callable[[], str]) -> AbstractContextManager[None]:
        """Around a piece of work of a module of the run, so that the watchdog can name it."""
        return nullcontext() if self._watchdog is None else self._watchdog.work(who, what)

    def collect(self, strategy: Strategy, tasks: Sequence[Task], key: Key, hosts: Hosts | None = None) -> list[Group]:
        """The groups of this process's tasks, played side by side, in their order; `key` is (run, step).

        All processes name all tasks, and the key of each is the same whoever plays it; `hosts` deals them otherwise.
        """
        mine = (hosts or self.hosts).mine(list(enumerate(tasks)))

        return self.run(_together([self.group(strategy, task, (*key, i)) for i, task in mine]))

    async def group(self, strategy: Strategy, task: Task, key: Key) -> Group:
        """One task's group; `key` is (run, step, task). To be awaited in an asyncio task of its own."""
        _GROUP.set(_Group())
        return await strategy.collect(task, self, key)

    async def episode(
        self,
        task: Task,
        agent: str | Agent,
        key: Key,
        sample: int = 0,
        prefix: Prefix | Callable[[], Prefix | None] | None = None,
        after: After | None = None,
    ) -> Trajectory | None:
        """One episode of an agent; a failing world is replaced `retries` times, then the episode is None.

        With a `prefix` it goes on from another episode's first turns; a function is asked for it at each attempt. `after` is told
        after each turn, and after a failure anew.
        """
        who = self.agents[agent] if isinstance(agent, str) else agent
        engine, told = self.engines[who.engine], (*self._told, *([after] if after else []))

        async def tell(speaker: Speaker) -> None:
            for one in told:
                await one(speaker)

        async def act(world: World, watch: Watch) -> Trajectory:
            before = prefix() if callable(prefix) else prefix
            return await play(world, who, engine, (*key, sample), sample, watch, before, tell)

        return await self.driven(task, who, sample, act)

    async def driven(
        self, task: Task, agent: Agent, sample: int, act: Callable[[World, Watch], Awaitable[Trajectory]]
    ) -> Trajectory | None:
        """An episode that `act` plays, in a place of the agent's engine and with an episode's retries."""
        async with self._places[agent.engine]:
            return await self.attempted(task, sample, act)

    async def match(self, task: Task, agents: Mapping[int, str | Agent], key: Key, sample: int = 0) -> Episode | None:
        """One episode of a game with an agent in each of these seats; where it fails, as `episode`."""
        who = {seat: self.agents[agent] if isinstance(agent, str) else agent for seat, agent in agents.items()}

        async def act(world: World, watch: Watch) -> Episode:
            return await play_match(world, who, self.engines, (*key, sample), sample, watch)

        async with self._seated([agent.engine for agent in who.values()]):
            return await self.attempted(task, sample, act)

    @asynccontextmanager
    async def _seated(self, engines: Sequence[str]) -> AsyncIterator[None]:
        """A place for each seat, or all that its engine has. One match after the other: two could hold what both wait for."""
        async with AsyncExitStack() as places:
            async with self._seating:
                for name, count in Counter(engines).items():
                    for _ in range(min(count, self.engines[name].places)):
                        await places.enter_async_context(self._places[name])
            yield

    async def scripted(self, task: Task, player: str, seed: int, sample: int = 0) -> Trajectory | None:
        """One episode of a scripted player of the environment."""
        async with self._scripted_places:
            return await self.attempted(task, sample, lambda world, watch: scripted(world, player, seed, sample, watch))

    async def attempted(self, task: Task, sample: int, act: Callable[[World, Watch], Awaitable[T]]) -> T | None:
        """An episode as `act` plays it; where it is given up it counts as dropped."""
        played = await self.attempt(task, sample, act)
        if played is None:
            self.failures.drop(task)
        return played

    async def attempt(self, task: Task, sample: int, act: Callable[[World, Watch], Awaitable[T]]) -> T | None:
        """What `act` finds in a world, with an episode's retries; None where they all fail or the group's time is up before."""
        found, seconds = None, self.deadlines.group
        try:
            async with asyncio.timeout_at(_GROUP.get(_Group()).end(seconds)) as clock:
                found = await self._retried(task, sample, act)
        except TimeoutError:
            if not clock.expired():
                raise
            self.failures.add(DeadlineExceeded(f"sample {sample} was not done after the {seconds:g} s that a group has"), task)
        return found

    async def _retried(self, task: Task, sample: int, act: Callable[[World, Watch], Awaitable[T]]) -> T | None:
        watch = unwatched if self._watchdog is None else functools.partial(self._watchdog.wait, task, sample)
        failed = lost = 0
        while failed <= self.retries and lost <= LOSSES:
            world, good = World(self._workers, task, self.deadlines), False
            try:
                async with within(self.deadlines.episode, f"sample {sample}"):
                    found = await act(world, watch)
                good = True
                return found
            except EnvironmentFailure as failure:
                self.failures.add(failure, task)
                failed, lost = failed + (failure.kind != "lost"), lost + (failure.kind == "lost")
            finally:
                world.close(keep=good)
        return None

    async def sample(self, agent: str, prompts: Sequence[np.ndarray], n: int, key: Key) -> list[list[Call]]:
        """`n` calls for every prompt, outside of any episode. Raises DeadlineExceeded where one takes longer than a turn may."""
        who = self.agents[agent]
        engine = self.engines[who.engine]

        async def one(i: int, j: int) -> Call:
            async with self._places[who.engine]:
                call = await sampled(engine, prompts[i], who.sampling, (*key, i, j), None, self.deadlines.turn, who.engine)
            engine.release(call)
            return call

        calls = await _together(list(itertools.starmap(one, itertools.product(range(len(prompts)), range(n)))))
        return [calls[i * n : (i + 1) * n] for i in range(len(prompts))]

    def publish(self, params: Params, version: int, engine: str = "policy") -> None:
        self.engines[engine].publish(params, version)
        self.versions[engine] = version
        for follow in self.followers:
            follow(params, version, engine)

    def close(self) -> None:
        """Stop engines and workers; leaves no process behind."""
        if self._watchdog is not None:
            self._watchdog.close()
        if self._service is not None and not self._service.close():
            return  # a world in this process hangs, and with it the loop; both end with the process
        self._service = None
        for engine in self.engines.values():
            engine.close()
        if not self.loop.is_closed():
            _finish(self.loop, self._stop())
            _finish(self.loop, self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _stop(self) -> None:
        """Stop the workers; after an error or a second Ctrl-C there may be episodes left in the middle."""
        unfinished = asyncio.all_tasks() - {asyncio.current_task()}  # with those that were about to begin
        for task in unfinished:
            task.cancel()
        await self._workers.stop()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _finish(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns; where this thread runs a loop already, as a notebook's does, another one waits for it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return loop.run_until_complete(work)
    with ThreadPoolExecutor(1) as beside:
        future = beside.submit(loop.run_until_complete, work)
        try:
            return future.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(loop.stop)
            raise


async def _together(work: Sequence[Awaitable[T]]) -> list[T]:
    """All results, in order; where one raises, the others are given up first."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
