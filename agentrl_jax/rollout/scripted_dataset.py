"""Datasets of scripted policies: episodes from parallel processes, written shard by shard."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np

from agentrl_jax.environment import make
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.storage import demonstration_file
from agentrl_jax.storage.dataset_folder import (
    INDEX_DTYPE,
    DatasetManifest,
    IndexEntry,
    bind_manifest,
    index_entry_of,
    write_index,
)
from agentrl_jax.storage.folder_lock import exclusive_lock
from agentrl_jax.timeouts import Timeouts
from agentrl_jax.workers.pool import Task
from agentrl_jax.workers.server import EnvServer, exit_with_parent

RETRIES = 2  # fresh environments for an episode whose environment failed
ENV_ID = 0  # the handle of the open environment


def write_dataset(
    folder: Path,
    manifest: DatasetManifest,
    processes: int = 1,
    on_shard_done: Callable[[int], None] = lambda records: None,
) -> None:
    """Write the missing shards of a dataset.

    After an interruption the same call continues with the shards that are incomplete.

    Args:
        folder: Of the dataset.
        manifest: Describes the dataset.
        processes: That write shards; the result does not depend on it.
        on_shard_done: Called with the number of records of each finished shard.

    Raises UserError where the folder holds another dataset or another process is writing it, where
    an option is unknown, or where a process died.
    """
    validate_player(manifest)
    with exclusive_lock(folder, "writing a data set"):
        bind_manifest(folder, manifest)
        missing = manifest.missing_shards(folder)
        if min(processes, len(missing)) <= 1:
            for shard in missing:
                on_shard_done(write_shard(folder, manifest, shard))
            return
        # Spawned, not forked: the caller may run threads.
        context = multiprocessing.get_context("spawn")
        earlier_children = set(multiprocessing.active_children())
        with ProcessPoolExecutor(
            min(processes, len(missing)), context, _init_process, (os.getpid(),)
        ) as pool:
            try:
                shards = [pool.submit(write_shard, folder, manifest, shard) for shard in missing]
                for future in as_completed(shards):
                    on_shard_done(future.result())
            except BaseException as error:
                # A shard may take an hour: do not wait for it.
                for process in set(multiprocessing.active_children()) - earlier_children:
                    process.terminate()
                if isinstance(error, BrokenProcessPool):
                    raise UserError(
                        f"a process that was writing {folder} died: the same command continues "
                        "where it stopped"
                    ) from error
                raise


def validate_player(manifest: DatasetManifest) -> None:
    """Raises UserError where there is no such environment, option or scripted policy."""
    env = make(manifest.environment, manifest.options)
    env.close()
    if manifest.player not in env.scripted_policies:
        raise UserError(
            f"{type(env).__name__} has no scripted policy {manifest.player!r}, only "
            f"{', '.join(env.scripted_policies)}"
        )


def write_shard(folder: Path, manifest: DatasetManifest, shard: int) -> int:
    """Play and write a shard, its index last; returns the number of its records."""
    episodes = manifest.episodes(shard)
    path, index = manifest.shard_path(folder, shard), np.zeros(len(episodes), INDEX_DTYPE)

    def episode_records() -> Iterator[bytes]:
        server = EnvServer(lambda: None)
        try:
            for i, episode in enumerate(episodes):
                record, index[i] = record_episode(server, manifest, episode)
                yield record
        finally:
            server.stop()

    demonstration_file.write(path, episode_records())
    write_index(path, index)
    return len(episodes)


def record_episode(
    server: EnvServer, manifest: DatasetManifest, episode: int
) -> tuple[bytes, IndexEntry]:
    """An episode's record and its index entry.

    The episode is that of `ScriptedEpisodes` on the same task with the key (seed, -1, episode). A
    failed environment is replaced by a fresh one. Raises UserError where it fails at every attempt.
    """
    task = Task(manifest.environment, manifest.env_seed(episode), manifest.options)
    for retries_left in range(RETRIES, -1, -1):
        try:
            opening, info = server.reset(ENV_ID, task.environment, task.options, task.seed, None)
            turns = server.play(
                ENV_ID, manifest.player, seed_of(manifest.seed, -1, episode, 0), Timeouts().episode
            )
            break
        except UserError:
            raise
        except Exception as error:  # any error of an environment
            server.close(ENV_ID, keep=False)
            if not retries_left:
                raise UserError(
                    f"episode {episode} failed in {RETRIES + 1} fresh environments "
                    f"({error!r:.300}): fix {task.name}"
                ) from error
    record = demonstration_file.encode_turns(
        opening, turns, task.name, turns[-1][-1].get("success"), info.get("tools", ())
    )
    return record, index_entry_of(demonstration_file.decode(record))


def _init_process(parent: int) -> None:
    """In a writing process: a Ctrl-C ends it at once, and so does the end of its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=exit_with_parent, args=(parent,), daemon=True).start()
