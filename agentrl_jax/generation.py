"""Data sets of scripted players: episodes played in processes side by side, without engines, and written shard by shard."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

from agentrl_jax import records
from agentrl_jax.deadlines import Deadlines
from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.locks import alone
from agentrl_jax.shards import FACTS, Fact, Recipe, claim, fact, write_index
from agentrl_jax.worker import Worlds, outlive_nobody
from agentrl_jax.workers import Task

RETRIES = 2  # fresh worlds for an episode whose world failed
WORLD = 0  # the handle of the one that is open


def write(folder: Path, recipe: Recipe, processes: int = 1, told: Callable[[int], None] = lambda records: None) -> None:
    """Write what is missing of a data set; `told` hears how many records a finished shard has. The result is the same for any `processes`.

    Whenever it is ended, the same call goes on with the shards that are not whole. Raises UserError where the folder holds another
    data set or somebody else is writing it, where an option is unknown, or where a process died.
    """
    check_player(recipe)
    with alone(folder, "writing a data set"):
        claim(folder, recipe)
        missing = recipe.missing(folder)
        if min(processes, len(missing)) <= 1:
            for shard in missing:
                told(write_shard(folder, recipe, shard))
            return
        # Spawned, not forked: whoever calls may run threads.
        context, others = multiprocessing.get_context("spawn"), set(multiprocessing.active_children())
        with ProcessPoolExecutor(min(processes, len(missing)), context, _begin, (os.getpid(),)) as pool:
            try:
                for done in as_completed([pool.submit(write_shard, folder, recipe, shard) for shard in missing]):
                    told(done.result())
            except BaseException as error:
                for process in set(multiprocessing.active_children()) - others:  # a shard may take an hour
                    process.terminate()
                if isinstance(error, BrokenProcessPool):
                    raise UserError(f"a process that was writing {folder} died: the same command goes on where it stopped") from error
                raise


def check_player(recipe: Recipe) -> None:
    """Raises UserError where there is no such world, option or player."""
    world = make(recipe.environment, recipe.options)
    world.close()
    if recipe.player not in world.players:
        raise UserError(f"{type(world).__name__} has no player {recipe.player!r}, only {', '.join(world.players)}")


def write_shard(folder: Path, recipe: Recipe, shard: int) -> int:
    """Play and write a shard, its index last; returns the number of its records."""
    episodes = recipe.episodes(shard)
    path, facts = recipe.shard_path(folder, shard), np.zeros(len(episodes), FACTS)

    def played() -> Iterator[bytes]:
        worlds = Worlds(lambda: None)
        try:
            for i, episode in enumerate(episodes):
                record, facts[i] = play(worlds, recipe, episode)
                yield record
        finally:
            worlds.stop()

    records.write(path, played())
    write_index(path, facts)
    return len(episodes)


def play(worlds: Worlds, recipe: Recipe, episode: int) -> tuple[bytes, Fact]:
    """An episode's record and its facts: those that `Scripted` makes of the same task, by the key (seed, -1, episode).

    A world that fails is replaced, and the fresh one begins again. Raises UserError where it fails at every attempt.
    """
    task = Task(recipe.environment, recipe.world(episode), recipe.options)
    for left in range(RETRIES, -1, -1):
        try:
            opening, _ = worlds.reset(WORLD, task.environment, task.options, task.seed, None)
            turns = worlds.play(WORLD, recipe.player, seed_of(recipe.seed, -1, episode, 0), Deadlines().episode)
            break
        except UserError:
            raise
        except Exception as error:  # whatever a world raises
            worlds.close(WORLD, keep=False)
            if not left:
                raise UserError(f"episode {episode} failed in {RETRIES + 1} fresh worlds ({error!r:.300}): mend {task.name}") from error
    success = turns[-1][-1].get("success")
    return records.encode_played(opening, turns, task.name, success), fact(float(sum(turn[2] for turn in turns)), len(turns), success)


def _begin(parent: int) -> None:
    """In a process that writes: a Ctrl-C ends it at once, and so does its parent's death."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=outlive_nobody, args=(parent,), daemon=True).start()
