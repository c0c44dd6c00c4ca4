"""`steps`: environment steps a second, in this process and through one worker process; generates the table of docs/datasets.md."""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.envs.lmrl.published import PUBLISHED
from agentrl_jax.launch import pages
from agentrl_jax.launch.benches.rivals import significant
from agentrl_jax.launch.benches.shapes import surroundings
from agentrl_jax.launch.options import option
from agentrl_jax.messages import Message, assistant
from agentrl_jax.processes import Processes
from agentrl_jax.worker import Worlds
from agentrl_jax.workers import Task, World, importable

GAMES = tuple(dict.fromkeys(published.id for published in PUBLISHED.values()))
OTHERS = ("agentrl_jax.envs:agentrl/Shop-v0", "agentrl_jax.envs:agentrl/HarbourCase-v0")
SECONDS = 3600.0  # that an episode which is written down may take
Script = tuple[Task, tuple[Message, ...]]


@dataclass
class Stepping:
    """Episodes of a player are written down first and then repeated, so that no player is timed; resets are."""

    environment: tuple[str, ...] = option((*GAMES, *OTHERS), "Gymnasium ids; may be repeated.")
    player: str = option("random", "Whose actions are repeated.")
    episodes: int = option(8, "Different ones.", 1)
    worlds: int = option(16, "At once in the worker process.", 1)
    seconds: float = option(2.0, "Of each measurement.", 0.01)
    page: str = option("", "The page whose table `steps` is replaced, docs/datasets.md; empty: none.")

    def prepare(self) -> None:
        """Nothing runs on this process's devices."""

    def run(self) -> dict[str, Any]:
        """Measure, print the table and report. Raises UserError where a world cannot be made or has no such player."""
        found = {name.rpartition("/")[2]: self.measured(name) for name in map(importable, self.environment)}
        lines = [f"| {name} | {alone:,.0f} | {worker:,.0f} |" for name, (alone, worker) in found.items()]
        table = "\n".join(["| steps a second | this process | one worker process |", "|---|---|---|", *lines])
        if self.page:
            pages.put(Path(self.page), "steps", table)
        print(table)
        return {"bench": "steps", "player": self.player, "worlds": self.worlds, "steps_per_second": found, **surroundings()}

    def measured(self, name: str) -> tuple[float, float]:
        """Steps a second of a world alone, and through a worker process."""
        worlds = Worlds(lambda: None)
        try:
            scripts = [written(worlds, Task(name, seed), self.player) for seed in range(self.episodes)]
            alone = rate(direct(worlds, scripts), self.seconds)
        finally:
            worlds.stop()
        return significant(alone), significant(asyncio.run(through(scripts, self.worlds, self.seconds)))


def written(worlds: Worlds, task: Task, player: str) -> Script:
    """What a player does in an episode."""
    worlds.reset(0, task.environment, task.options, task.seed, None)
    return task, tuple(assistant(action) for action, *_ in worlds.play(0, player, task.seed, SECONDS))


def direct(worlds: Worlds, scripts: Sequence[Script]) -> Iterator[None]:
    """Repeats the episodes without end, a step at a time."""
    for task, actions in itertools.cycle(scripts):
        worlds.reset(0, task.environment, task.options, task.seed, None)
        for action in actions:
            worlds.step(0, action.to_dict())
            yield


def rate(steps: Iterator[None], seconds: float) -> float:
    """Steps a second, the first one not timed."""
    next(steps)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        next(steps)
        count += 1
    return count / (time.perf_counter() - began)


async def through(scripts: Sequence[Script], worlds: int, seconds: float) -> float:
    """Steps a second of so many worlds that repeat the episodes side by side in one worker process."""
    pool, count = Processes(1), 0

    async def once(task: Task, actions: Sequence[Message]) -> None:
        nonlocal count
        world = World(pool, task)
        await world.reset()
        for action in actions:
            await world.step(action)
            count += 1
        world.close()

    async def repeat(which: int) -> None:
        for script in itertools.islice(itertools.cycle(scripts), which, None):
            await once(*script)

    await pool.start()
    try:
        await once(*scripts[0])  # what the world loads is not timed
        before, began = count, time.perf_counter()
        async with asyncio.timeout(seconds):
            await asyncio.gather(*map(repeat, range(worlds)))
    except TimeoutError:
        return (count - before) / (time.perf_counter() - began)
    finally:
        await pool.stop()
    raise AssertionError("episodes are repeated without end")
