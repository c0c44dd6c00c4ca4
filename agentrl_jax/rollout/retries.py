"""`EpisodeRetries`: fresh environment instances for an episode until one does not fail."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure
from agentrl_jax.rollout.agent_session import WaitTracker, untracked_wait
from agentrl_jax.rollout.failures import Failures
from agentrl_jax.rollout.watchdog import Watchdog
from agentrl_jax.timeouts import Timeouts, time_limit
from agentrl_jax.workers.pool import EnvHandle, Task, WorkerPool

T = TypeVar("T")
# How often an episode may lose its environment to another environment's failure in the same
# worker; these attempts are not counted as retries.
MAX_LOST_ENVS = 20


class _GroupClock:
    """The deadline of the current group, which starts with its first episode."""

    def __init__(self) -> None:
        self._deadline: float | None = None

    def deadline(self, seconds: float) -> float:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + seconds
        return self._deadline


_GROUP_CLOCK: ContextVar[_GroupClock] = ContextVar("_GROUP_CLOCK")


def start_group_clock() -> None:
    """All episodes of the current asyncio task, and of those it starts, share one deadline."""
    _GROUP_CLOCK.set(_GroupClock())


@dataclass
class EpisodeRetries:
    """Runs episode functions in fresh environment instances, at most 1 + `retries` times each."""

    worker_pool: WorkerPool
    retries: int
    failures: Failures
    watchdog: Watchdog | None = None

    async def run(
        self,
        task: Task,
        sample: int,
        episode_fn: Callable[[EnvHandle, WaitTracker], Awaitable[T]],
        timeouts: Timeouts,
    ) -> T | None:
        """The result of the first attempt that does not fail.

        None where all attempts fail or the group's time is up before.
        """
        result, seconds = None, timeouts.group
        group_clock = _GROUP_CLOCK.get(_GroupClock())
        try:
            async with asyncio.timeout_at(group_clock.deadline(seconds)) as timeout:
                result = await self._run_attempts(task, sample, episode_fn, timeouts)
        except TimeoutError:
            if not timeout.expired():
                raise
            message = f"sample {sample} was not done after the {seconds:g} s that a group has"
            self.failures.add(DeadlineExceeded(message), task)
        return result

    async def _run_attempts(
        self,
        task: Task,
        sample: int,
        episode_fn: Callable[[EnvHandle, WaitTracker], Awaitable[T]],
        timeouts: Timeouts,
    ) -> T | None:
        track_wait = (
            untracked_wait
            if self.watchdog is None
            else functools.partial(self.watchdog.track_wait, task, sample)
        )
        num_failed = num_lost = 0
        while num_failed <= self.retries and num_lost <= MAX_LOST_ENVS:
            env, is_reusable = EnvHandle(self.worker_pool, task, timeouts), False
            try:
                async with time_limit(timeouts.episode, f"sample {sample}"):
                    result = await episode_fn(env, track_wait)
                is_reusable = True
                return result
            except EnvironmentFailure as failure:
                self.failures.add(failure, task)
                is_lost = failure.kind == "lost"
                num_lost += is_lost
                num_failed += not is_lost
            finally:
                env.close(reuse=is_reusable)
        return None
