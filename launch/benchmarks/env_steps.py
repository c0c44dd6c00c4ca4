"""`steps`: environment steps per second, in this process and through worker processes.

Generates the table of docs/datasets.md.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.envs.lmrl.published_statistics import PUBLISHED_DATASETS
from agentrl_jax.launch import dataclass_flags, doc_tables
from agentrl_jax.launch.benchmarks.rivals import round_significant
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.messages import Message, action_from_json
from agentrl_jax.workers.pool import EnvHandle, Task, importable_env_name
from agentrl_jax.workers.process_pool import ProcessPool
from agentrl_jax.workers.server import EnvServer

PUBLISHED_ENVS = tuple(
    dict.fromkeys(published.environment_id for published in PUBLISHED_DATASETS.values())
)
OTHER_ENVS = ("agentrl_jax.envs:agentrl/Shop-v0", "agentrl_jax.envs:agentrl/HarbourCase-v0")
EPISODE_TIMEOUT = 3600.0  # seconds to record an episode
Script = tuple[Task, tuple[Message, ...]]


@dataclass
class Stepping:
    """Replays recorded episodes of a scripted policy: only steps and resets are timed."""

    environment: tuple[str, ...] = option(
        (*PUBLISHED_ENVS, *OTHER_ENVS), "Gymnasium ids; may be repeated."
    )
    player: str = option("random", "The scripted policy whose actions are replayed.")
    episodes: int = option(8, "Different episodes to replay.", 1)
    workers: int = option(1, "Worker processes.", 1)
    num_envs: int = option(16, "Environments at once in each worker process.", 1)
    seconds: float = option(2.0, "Seconds of each measurement.", 0.01)
    page: str = option(
        "", "The page whose table `steps` is replaced, docs/datasets.md; empty: none."
    )
    option: tuple[str, ...] = option((), "name=value for the constructors; may be repeated.")

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Measure, print the table and report.

        Raises:
            UserError: an environment cannot be made or lacks the scripted policy.
        """
        rates = {
            name.rpartition("/")[2]: self.measure(name)
            for name in map(importable_env_name, self.environment)
        }
        lines = [
            f"| {name} | {inline:,.0f} | {worker:,.0f} |"
            for name, (inline, worker) in rates.items()
        ]
        heading = f"| steps a second | this process | {_processes(self.workers)} |"
        table = "\n".join([heading, "|---|---|---|", *lines])
        if self.page:
            doc_tables.replace_section(Path(self.page), "steps", table)
        print(table)
        return {
            "bench": "steps",
            "player": self.player,
            "worlds": self.num_envs,
            "workers": self.workers,
            "steps_per_second": rates,
            **run_environment(),
        }

    def measure(self, name: str) -> tuple[float, float]:
        """Steps per second in this process, and through the worker processes."""
        options = dataclass_flags.parse_literals(self.option)
        env_server = EnvServer(lambda: None)
        try:
            scripts = [
                record_script(env_server, Task(name, seed, options), self.player)
                for seed in range(self.episodes)
            ]
            inline = step_rate(inline_steps(env_server, scripts), self.seconds)
        finally:
            env_server.stop()
        return round_significant(inline), round_significant(
            asyncio.run(worker_step_rate(scripts, self.num_envs, self.seconds, self.workers))
        )


def _processes(count: int) -> str:
    """As the heading of a column."""
    return "one worker process" if count == 1 else f"{count} worker processes"


def record_script(env_server: EnvServer, task: Task, scripted_policy: str) -> Script:
    """The actions of a scripted policy in an episode."""
    env_server.reset(0, task.environment, task.options, task.seed, None)
    return task, tuple(
        action_from_json(action)
        for action, *_ in env_server.play(0, scripted_policy, task.seed, EPISODE_TIMEOUT)
    )


def inline_steps(env_server: EnvServer, scripts: Sequence[Script]) -> Iterator[None]:
    """Replay the episodes in an endless loop, yielding after each step."""
    for task, actions in itertools.cycle(scripts):
        env_server.reset(0, task.environment, task.options, task.seed, None)
        for action in actions:
            env_server.step(0, action.to_dict())
            yield


def step_rate(steps: Iterator[None], seconds: float) -> float:
    """Steps per second, without the first step."""
    next(steps)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        next(steps)
        count += 1
    return count / (time.perf_counter() - began)


async def worker_step_rate(
    scripts: Sequence[Script], num_envs: int, seconds: float, workers: int = 1
) -> float:
    """Steps per second of `num_envs` environments in each of some worker processes, which replay
    the episodes.
    """
    pool, count = ProcessPool(workers), 0

    async def play_script(task: Task, actions: Sequence[Message]) -> None:
        nonlocal count
        env = EnvHandle(pool, task)
        await env.reset()
        for action in actions:
            await env.step(action)
            count += 1
        env.close()

    async def repeat_scripts(offset: int) -> None:
        for script in itertools.islice(itertools.cycle(scripts), offset, None):
            await play_script(*script)

    await pool.start()
    try:
        await play_script(*scripts[0])  # what the environment loads is not timed
        before, began = count, time.perf_counter()
        async with asyncio.timeout(seconds):
            await asyncio.gather(*map(repeat_scripts, range(num_envs * workers)))
    except TimeoutError:
        return (count - before) / (time.perf_counter() - began)
    finally:
        await pool.stop()
    raise AssertionError("the replay never ends")
