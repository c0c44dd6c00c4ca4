"""`Runtime`: the engines, agents and environment workers that strategies and algorithms act on."""

import asyncio
import copy
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.engine import BatchEngine, Engine, ProgramRunner
from agentrl_jax.errors import UserError
from agentrl_jax.invariants import Invariants
from agentrl_jax.policy import Params
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.agent_session import AgentSession, WaitTracker
from agentrl_jax.rollout.call_records import reported_rewards
from agentrl_jax.rollout.call_sampling import sample_batch, sample_call
from agentrl_jax.rollout.engine_slots import EngineSlots, SlotUse
from agentrl_jax.rollout.episode import Prefix, TurnCallback, play_episode, play_scripted_episode
from agentrl_jax.rollout.episode_counts import EpisodeCounts
from agentrl_jax.rollout.episode_records import reported_end
from agentrl_jax.rollout.event_loop_thread import (
    EventLoopThread,
    close_unstarted,
    gather_or_cancel,
    run_until_complete,
)
from agentrl_jax.rollout.failures import Failures
from agentrl_jax.rollout.lazy_tasks import Tasks
from agentrl_jax.rollout.match import play_match
from agentrl_jax.rollout.named_models import Model, NamedModels
from agentrl_jax.rollout.retries import EpisodeRetries, start_group_clock
from agentrl_jax.rollout.watchdog import EpisodeWait, Watchdog
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.trajectories import Call, Episode, Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import EnvHandle, Task, WorkerPool

T = TypeVar("T")
EpisodeT = TypeVar("EpisodeT", Trajectory, Episode)
MAX_SCRIPTED_EPISODES = 256  # at once


@runtime_checkable
class Strategy(Protocol):
    """How a task becomes a group of trajectories."""

    async def collect(self, task: Task, runtime: "Runtime", key: RandomKey) -> Group:
        """The group of one task; `key` is (run, step, task)."""
        ...


class Runtime:
    """Named engines, named agents and environment workers, on one event loop."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        agents: Mapping[str, Agent],
        workers: WorkerPool,
        retries: int = 2,
        timeouts: Timeouts | None = None,
        log: Callable[[str], None] | None = None,
        process_group: ProcessGroup | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Start the workers.

        Args:
            engines: By name; agents name the engine that samples for them.
            agents: By name.
            workers: Run the environments.
            retries: Fresh environment instances for an episode whose environment failed.
            timeouts: Of calls, replies, episodes and groups.
            log: Receives reports of long waits and the first failure of each kind; None: no
                watchdog.
            process_group: Of several processes each has its own runtime, for its tasks.
            loop: None: a new one.
        """
        self.process_group = process_group or ProcessGroup()
        self.engines, self.agents = dict(engines), dict(agents)
        self.timeouts = (timeouts or Timeouts()).validate()
        self.models = NamedModels(self.agents, self.engines, self.timeouts)
        self.failures = Failures(log)
        self.invariants, self.episode_counts = Invariants(), EpisodeCounts()
        self.loop = loop or asyncio.new_event_loop()
        self.published_versions: dict[str, int] = {}  # the last one of each engine
        self._published_leaf: dict[str, Any] = {}  # a small array of the weights, of each engine
        # Called with (params, version, engine name) at each publication.
        self.publish_callbacks: list[Callable[[Params, int, str], None]] = []
        self._worker_pool = workers
        self._retries = EpisodeRetries(workers, retries, self.failures)
        self._slots = EngineSlots(self.engines)
        self._scripted_slots = asyncio.Semaphore(MAX_SCRIPTED_EPISODES)
        self._turn_callbacks: tuple[TurnCallback, ...] = ()
        self._loop_thread: EventLoopThread | None = None
        self._watchdog: Watchdog | None = None
        try:
            run_until_complete(self.loop, workers.start())
        except BaseException:
            self.close()
            raise
        if log is not None:
            self._watchdog = Watchdog(self.timeouts.stall_report, log)
            self._retries.watchdog = self._watchdog

    def add_agent(self, name: str, agent: Agent, engine: Engine) -> None:
        """Add a named agent, and the engine that it names.

        The engine that had this name is closed, unless it is still here under another one.
        """
        previous = self.engines.get(agent.engine)
        self.agents[name], self.engines[agent.engine] = agent, engine
        if previous is not None and all(previous is not x for x in self.engines.values()):
            previous.close()
        self._slots.add(agent.engine, engine)

    def add_model(self, name: str, model: Model) -> None:
        """Add a named model: as an agent if it has an engine, as a scorer if it can score."""
        if model.engine is not None:
            self.add_agent(name, model.agent, model.engine)
        if model.scorer is not None:
            self.models.add_scorer(name, model.agent.renderer, model.scorer)

    def _agent(self, agent: str | Agent) -> Agent:
        """The agent of a name. Raises UserError where there is none."""
        if isinstance(agent, str) and agent not in self.agents:
            raise UserError(f"no agent is called {agent!r}; there are {', '.join(self.agents)}")
        return self.agents[agent] if isinstance(agent, str) else agent

    def with_agents(
        self, agents: Mapping[str, Agent] | None = None, on_turn: TurnCallback | None = None
    ) -> "Runtime":
        """This runtime with some agents replaced, for a strategy that wraps another.

        Args:
            agents: By name, in place of those of the same name.
            on_turn: Called after every turn of all episodes of the result.
        """
        other = copy.copy(self)
        other.agents = {**self.agents, **(agents or {})}
        other._turn_callbacks = self._all_turn_callbacks(on_turn)
        return other

    def run(self, awaitable: Awaitable[T]) -> T:
        """The result of a coroutine on the runtime's loop."""

        async def wait() -> T:
            return await awaitable

        if self._loop_thread is None:
            return run_until_complete(self.loop, wait())
        try:
            return self._loop_thread.run(wait(), self.timeouts.barrier)
        except BaseException:
            close_unstarted(awaitable)
            raise

    def start_loop_thread(self) -> None:
        """Run the event loop in a thread from now on: episodes continue between calls of `run`."""
        self._loop_thread = self._loop_thread or EventLoopThread(self.loop)

    def call_soon(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Have the event loop call a function; from any thread."""
        self.loop.call_soon_threadsafe(callback, *arguments)

    def track_work(
        self, component: str, describe: Callable[[], str]
    ) -> AbstractContextManager[None]:
        """A context manager around a component's work, which the watchdog reports when overdue."""
        if self._watchdog is None:
            return nullcontext()
        return self._watchdog.track_work(component, describe)

    def collect(
        self,
        strategy: Strategy,
        tasks: Tasks,
        key: RandomKey,
        process_group: ProcessGroup | None = None,
    ) -> list[Group]:
        """The groups of this process's tasks, collected concurrently, in the order of the tasks.

        Args:
            strategy: Collects each group.
            tasks: Of all processes; only this process's are read from the sequence. A task's key
                does not depend on the process that collects it.
            key: (run, step).
            process_group: Distributes the tasks in place of the runtime's.
        """
        indices = (process_group or self.process_group).local_items(range(len(tasks)))
        return self.run(
            gather_or_cancel([self.group(strategy, tasks[i], (*key, i)) for i in indices])
        )

    def waits(self) -> list[EpisodeWait]:
        """What episodes wait for now, where there is a watchdog; from any thread."""
        return [] if self._watchdog is None else self._watchdog.waits()

    def slot_use(self) -> dict[str, SlotUse]:
        """How many episodes hold and await slots of each engine; from any thread."""
        return self._slots.use()

    async def group(self, strategy: Strategy, task: Task, key: RandomKey) -> Group:
        """One task's group; `key` is (run, step, task). Await it in an asyncio task of its own."""
        start_group_clock()
        return await strategy.collect(task, self, key)

    async def episode(
        self,
        task: Task,
        agent: str | Agent,
        key: RandomKey,
        sample: int = 0,
        prefix: Prefix | Callable[[], Prefix | None] | None = None,
        on_turn: TurnCallback | None = None,
    ) -> Trajectory | None:
        """One episode of an agent, in a slot of its engine.

        A failed environment is replaced `retries` times; then the episode is dropped: None.

        Args:
            task: What is played.
            agent: The agent, or its name.
            key: (run, step, task).
            sample: The episode's index in its group.
            prefix: Another episode's first turns, from which this one continues; a function is
                called at each attempt.
            on_turn: Called after each turn of each attempt.
        """
        player = self._agent(agent)
        engine, callbacks = self.engines[player.engine], self._all_turn_callbacks(on_turn)

        async def call_turn_callbacks(session: AgentSession) -> None:
            for callback in callbacks:
                await callback(session)

        async def play_in_env(env: EnvHandle, track_wait: WaitTracker) -> Trajectory:
            start = prefix() if callable(prefix) else prefix
            trajectory = await play_episode(
                env,
                player,
                engine,
                (*key, sample),
                sample,
                track_wait,
                start,
                call_turn_callbacks,
                self.models.write_note,
                self.invariants,
            )
            self.invariants.check(reported_end, trajectory, *env.end)
            if start is None:  # a branch keeps the rewards of its parent
                self.invariants.check(reported_rewards, trajectory, env.rewards)
            return trajectory

        return await self.run_in_slot(task, player, sample, play_in_env)

    async def match(
        self, task: Task, agents: Mapping[int, str | Agent], key: RandomKey, sample: int = 0
    ) -> Episode | None:
        """One episode of a multi-agent environment; a failed one is handled as by `episode`.

        Args:
            task: What is played.
            agents: An agent, or its name, by player index.
            key: (run, step, task).
            sample: The episode's index in its group.
        """
        players = {index: self._agent(agent) for index, agent in agents.items()}

        async def play_in_env(env: EnvHandle, track_wait: WaitTracker) -> Episode:
            return await play_match(
                env,
                players,
                self.engines,
                (*key, sample),
                sample,
                track_wait,
                self.models.write_note,
                self.invariants,
            )

        async with self._slots.match_slots([agent.engine for agent in players.values()]):
            return await self.run_episode(task, sample, play_in_env)

    async def scripted_episode(
        self, task: Task, player: str, seed: int, sample: int = 0
    ) -> Trajectory | None:
        """One episode of a scripted policy of the environment; None: dropped."""

        async def play_in_env(env: EnvHandle, track_wait: WaitTracker) -> Trajectory:
            return await play_scripted_episode(env, player, seed, sample, track_wait)

        async with self._scripted_slots:
            return await self._with_drops_counted(task, sample, play_in_env)

    async def run_in_slot(
        self,
        task: Task,
        agent: Agent,
        sample: int,
        episode_fn: Callable[[EnvHandle, WaitTracker], Awaitable[Trajectory]],
    ) -> Trajectory | None:
        """`run_episode` in a slot of the agent's engine."""
        async with self._slots.slot(agent.engine):
            return await self.run_episode(task, sample, episode_fn)

    async def run_episode(
        self,
        task: Task,
        sample: int,
        episode_fn: Callable[[EnvHandle, WaitTracker], Awaitable[EpisodeT]],
    ) -> EpisodeT | None:
        """`with_retries`, where None counts as a dropped episode, and any end is counted."""
        with self.episode_counts.episode() as ended:
            ended.result = result = await self._with_drops_counted(task, sample, episode_fn)
        return result

    async def _with_drops_counted(
        self, task: Task, sample: int, episode_fn: Callable[[EnvHandle, WaitTracker], Awaitable[T]]
    ) -> T | None:
        result = await self.with_retries(task, sample, episode_fn)
        if result is None:
            self.failures.add_dropped(task)
        return result

    async def with_retries(
        self, task: Task, sample: int, episode_fn: Callable[[EnvHandle, WaitTracker], Awaitable[T]]
    ) -> T | None:
        """The result of a function of a fresh environment instance; None where all attempts fail.

        The function is called with another instance after each `EnvironmentFailure`, `retries`
        times at most, and has an episode's timeout; see `EpisodeRetries.run`.
        """
        return await self._retries.run(task, sample, episode_fn, self.timeouts)

    async def sample(
        self, agent: str, prompts: Sequence[np.ndarray], n: int, key: RandomKey
    ) -> list[list[Call]]:
        """`n` calls for every prompt, outside of any episode.

        Raises:
            DeadlineExceeded: a call takes longer than a turn may.
            UserError: an episode that holds a slot of the same engine asks.
        """
        player = self._agent(agent)
        name, engine = player.engine, self.engines[player.engine]
        if isinstance(engine, BatchEngine) and engine.samples_batches(player.sampling):
            return await sample_batch(engine, prompts, n, player.sampling, key, self.invariants)
        self._slots.check_none_held(name)

        async def sample_one(i: int, j: int) -> Call:
            async with self._slots.slot(name):
                call = await sample_call(
                    engine,
                    prompts[i],
                    player.sampling,
                    (*key, i, j),
                    None,
                    self.timeouts.turn,
                    name,
                    self.invariants,
                )
            engine.release(call)
            return call

        indices = itertools.product(range(len(prompts)), range(n))
        calls = await gather_or_cancel([sample_one(i, j) for i, j in indices])
        return [calls[i * n : (i + 1) * n] for i in range(len(prompts))]

    def publish(self, params: Params, version: int, engine: str = "policy") -> None:
        """Give an engine new weights, and call the publish callbacks."""
        self.engines[engine].publish(params, version)
        self.published_versions[engine] = version
        self._published_leaf[engine] = _smallest_leaf(params)
        for callback in self.publish_callbacks:
            callback(params, version, engine)

    def wait_until_idle(self) -> None:
        """Return once no engine on this machine's devices has a call or runs a program: those of
        calls that were given up end first.
        """
        for engine in self.engines.values():
            if isinstance(engine, ProgramRunner):
                engine.wait_until_idle()

    def is_published(self, params: Params, engine: str) -> bool:
        """Whether these very arrays are the weights that the engine was last given."""
        leaf = self._published_leaf.get(engine)
        return leaf is not None and leaf is _smallest_leaf(params)

    def close(self) -> None:
        """Stop engines and workers; leaves no process behind."""
        if self._watchdog is not None:
            self._watchdog.close()
        if self._loop_thread is not None and not self._loop_thread.close():
            return  # an in-process environment hangs, and the loop with it: both end with us
        self._loop_thread = None
        for engine in self.engines.values():
            engine.close()
        self.models.close()
        if not self.loop.is_closed():
            run_until_complete(self.loop, self._stop())
            run_until_complete(self.loop, self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _stop(self) -> None:
        """Stop the workers, and cancel episodes that an error or a Ctrl-C left unfinished."""
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await self._worker_pool.stop()
        # A server that is cancelled may still accept a request, whose task is a new one.
        while unfinished := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def _all_turn_callbacks(self, on_turn: TurnCallback | None) -> tuple[TurnCallback, ...]:
        return (*self._turn_callbacks, *([on_turn] if on_turn else []))

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _smallest_leaf(params: Params) -> Any:
    return min(jax.tree.leaves(params), key=lambda x: x.size, default=None)
