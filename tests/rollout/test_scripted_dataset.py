"""Datasets: the same records as a run makes of the same tasks, for every scripted policy and after
any interruption.
"""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.small_runs import rollout_source, small_experiment

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.rollout import scripted_dataset
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.storage import demonstration_file
from agentrl_jax.storage.dataset_folder import (
    FIRST_ENV_SEED,
    DatasetManifest,
    dataset_index,
    index_entry_of,
)
from agentrl_jax.storage.folder_lock import exclusive_lock
from agentrl_jax.training import demonstrations
from agentrl_jax.training.config import DemonstrationConfig
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.workers.pool import InlinePool, Task
from agentrl_jax.workers.server import EnvServer

WORDLE = DatasetManifest(
    "agentrl_jax.envs:agentrl/Wordle-v0", "mixture", 11, {"words": 30}, seed=5, first=4, shards=3
)


def raw(folder: Path) -> list[bytes]:
    source = demonstrations.open_source(folder)
    return [demonstration_file.encode(source[i]) for i in range(len(source))]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def wordle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wordle") / "set"
    scripted_dataset.write_dataset(folder, WORDLE)
    return folder


def test_the_shards_divide_the_episodes():
    assert [list(WORDLE.episodes(shard)) for shard in range(3)] == [
        [4, 5, 6],
        [7, 8, 9, 10],
        [11, 12, 13, 14],
    ]
    assert [
        dataclasses.replace(WORDLE, records=n, shards=0).shards for n in (1, 10_000, 10_001)
    ] == [1, 1, 2]
    assert DatasetManifest("a", "b", 9).env_seed(7) == FIRST_ENV_SEED + 7
    for wrong in ({"records": 0}, {"shards": 12}, {"shards": -1}, {"seed": -1}, {"first": -1}):
        with pytest.raises(UserError, match="a dataset needs"):
            dataclasses.replace(WORDLE, **wrong)


@pytest.mark.parametrize(
    "manifest",
    [
        WORDLE,
        DatasetManifest("agentrl_jax.envs:agentrl/MazePO-v0", "mixture", 3),
        DatasetManifest("agentrl_jax.envs:agentrl/TextNav-v0", "mixture", 6, seed=1, shards=2),
        DatasetManifest("agentrl_jax.envs:agentrl/TwentyQuestions-v0", "mixture", 2, seed=2),
        DatasetManifest("agentrl_jax.envs:agentrl/CarDealer-v0", "mixture", 4, seed=3),
    ],
    ids=lambda manifest: manifest.environment.rpartition("/")[2],
)
def test_the_records_are_those_of_the_runtime(manifest: DatasetManifest, tmp_path: Path):
    last = manifest.first + manifest.records
    tasks = [
        Task(manifest.environment, manifest.env_seed(i), manifest.options) for i in range(last)
    ]
    with Runtime({}, {}, InlinePool()) as runtime:
        groups = runtime.collect(ScriptedEpisodes(manifest.player), tasks, (manifest.seed, -1))
    trajectories = [group.trajectories[0] for group in groups[manifest.first :]]
    scripted_dataset.write_dataset(tmp_path / "set", manifest)
    assert raw(tmp_path / "set") == list(map(demonstration_file.encode, trajectories))
    index = dataset_index(tmp_path / "set")
    assert list(map(tuple, index.tolist())) == list(map(index_entry_of, trajectories))
    assert index["return"].tolist() == [t.total_reward for t in trajectories]


@pytest.mark.slow
def test_a_run_writes_the_same_and_trains_on_a_folder(tmp_path: Path):
    scripted_dataset.write_dataset(
        tmp_path / "set",
        DatasetManifest("support.letter_task:tests/Letters-v0", "random", 8, shards=3),
    )
    with Run(small_experiment(rollout_source()), tmp_path / "own", quiet=True) as run:
        assert run.demonstrations is not None and raw(run.demonstrations) == raw(tmp_path / "set")
    config = DemonstrationConfig(path=str(tmp_path / "set"))
    with Run(
        dataclasses.replace(small_experiment(rollout_source()), demonstrations=config),
        tmp_path / "run",
        quiet=True,
    ) as run:
        feed = Demonstrations(batch=1, successful_only=True).open(run.begin_phase("rl"))
        tasks = {feed.next(step)[0].task for step in range(8)}
    assert (
        tasks == {t.task for t in demonstrations.read(tmp_path / "set") if t.success}
        and 0 < len(tasks) < 8
    )


def test_a_dataset_continues_the_episodes_of_another(wordle: Path, tmp_path: Path):
    for name, first, count in (("train", 4, 7), ("validation", 11, 4)):
        scripted_dataset.write_dataset(
            tmp_path / name, dataclasses.replace(WORDLE, first=first, records=count, shards=2)
        )
    assert raw(tmp_path / "train") + raw(tmp_path / "validation") == raw(wordle)
    scripted_dataset.write_dataset(tmp_path / "other", dataclasses.replace(WORDLE, seed=6))
    assert not set(raw(tmp_path / "other")) & set(raw(wordle))


def test_two_processes_write_the_same_as_one(wordle: Path, tmp_path: Path):
    record_counts: list[int] = []
    scripted_dataset.write_dataset(tmp_path / "set", WORDLE, 2, record_counts.append)
    assert files(tmp_path / "set") == files(wordle) and sorted(record_counts) == [3, 4, 4]


@pytest.mark.parametrize("stop", range(11))
def test_an_interrupted_dataset_is_continued(
    stop: int, wordle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, record_episode = tmp_path / "set", scripted_dataset.record_episode
    episodes: list[int] = []
    interrupts = [stop]

    def interrupted_record(server: EnvServer, manifest: DatasetManifest, episode: int) -> tuple:
        episodes.append(episode)
        if interrupts and len(episodes) > interrupts[0]:
            raise KeyboardInterrupt
        return record_episode(server, manifest, episode)

    monkeypatch.setattr(scripted_dataset, "record_episode", interrupted_record)
    with pytest.raises(KeyboardInterrupt):
        scripted_dataset.write_dataset(folder, WORDLE)
    there = [shard for shard in range(3) if shard not in WORDLE.missing_shards(folder)]
    assert there == [shard for shard in range(3) if WORDLE.episodes(shard)[-1] < 4 + stop]
    with pytest.raises(UserError, match=f"{3 - len(there)} of its 3 shards are missing"):
        demonstrations.open_source(folder)
    del episodes[:], interrupts[:]
    scripted_dataset.write_dataset(folder, WORDLE)
    assert episodes == [
        i for shard in range(3) if shard not in there for i in WORDLE.episodes(shard)
    ]
    assert files(folder) == files(wordle)
    del episodes[:]
    scripted_dataset.write_dataset(folder, WORDLE)
    assert episodes == []


def test_an_index_comes_after_its_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wordle: Path
):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            scripted_dataset,
            "write_index",
            lambda path, index: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        scripted_dataset.write_dataset(tmp_path / "set", WORDLE)
    assert WORDLE.shard_path(tmp_path / "set", 0).exists() and WORDLE.missing_shards(
        tmp_path / "set"
    ) == [
        0,
        1,
        2,
    ]
    scripted_dataset.write_dataset(tmp_path / "set", WORDLE)
    assert files(tmp_path / "set") == files(wordle)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_leaves_no_process_and_is_continued(tmp_path: Path, end: signal.Signals):
    manifest = DatasetManifest("agentrl_jax.envs:agentrl/MazePO-v0", "mixture", 1500, shards=150)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from agentrl_jax.rollout.scripted_dataset import write_dataset\n"
        "from agentrl_jax.storage.dataset_folder import DatasetManifest\n"
        f"if __name__ == '__main__': write_dataset(Path(sys.argv[1]), {manifest!r}, 2)"
    )
    (tmp_path / "write.py").write_text(code)
    command, environment = (
        [sys.executable, str(tmp_path / "write.py")],
        {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    writing = subprocess.Popen([*command, str(tmp_path / "set")], env=environment)
    until = time.monotonic() + 60
    while len(manifest.missing_shards(tmp_path / "set")) > 147 and time.monotonic() < until:
        time.sleep(0.01)
    children = Path(f"/proc/{writing.pid}/task/{writing.pid}/children").read_text().split()
    writing.send_signal(end)
    writing.wait()
    assert (
        0 < len(manifest.missing_shards(tmp_path / "set")) <= 147
        and len(children) >= 2
        and writing.returncode != 0
    )
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    for name in ("set", "whole"):
        subprocess.run([*command, str(tmp_path / name)], env=environment, check=True)
    written, expected = files(tmp_path / "set"), files(tmp_path / "whole")
    assert {name: written[name] for name in expected} == expected
    assert all(re.fullmatch(r".*\.unfinished", name) for name in written.keys() - expected.keys())


def test_another_manifest_policy_or_option_is_an_error(wordle: Path, tmp_path: Path):
    with pytest.raises(
        UserError,
        match=r"holds another dataset \(it differs in player, seed\): name another folder",
    ):
        scripted_dataset.write_dataset(wordle, dataclasses.replace(WORDLE, player="expert", seed=1))
    for change, message in (
        ({"player": "nobody"}, "Wordle has no scripted policy 'nobody', only random"),
        ({"options": {"colour": 1}}, "does not take the options"),
        ({"environment": "agentrl/Nope-v0"}, "no environment is called"),
    ):
        with pytest.raises(UserError, match=message):
            scripted_dataset.write_dataset(tmp_path / "set", dataclasses.replace(WORDLE, **change))
    assert not (tmp_path / "set").exists()
    with (
        exclusive_lock(wordle, "at work"),
        pytest.raises(UserError, match=r"another command is at work in .* \(process \d+ on "),
    ):
        scripted_dataset.write_dataset(wordle, WORDLE)


def test_a_failed_environment_is_replaced_until_retries_run_out(
    monkeypatch: pytest.MonkeyPatch, wordle: Path
):
    play, left, servers = EnvServer.play, [2], list[object]()

    def sometimes(self: EnvServer, *arguments: object) -> object:
        left[0] -= 1
        if left[0] >= 0:
            servers.append(self._active_env(scripted_dataset.ENV_ID))
            raise [EnvironmentFailure, ValueError, KeyError][left[0]]("the world is on fire")
        return play(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(EnvServer, "play", sometimes)
    record, index = scripted_dataset.record_episode(EnvServer(lambda: None), WORDLE, 4)
    assert record == raw(wordle)[0] and index == tuple(dataset_index(wordle)[0].tolist())
    assert len(set(servers)) == 2  # each attempt has its own environment
    left[0] = 3
    with pytest.raises(UserError, match=r"episode 4 failed in 3 fresh environments .*on fire"):
        scripted_dataset.record_episode(EnvServer(lambda: None), WORDLE, 4)


def test_a_dead_process_is_an_error_and_the_dataset_is_continued(tmp_path: Path):
    manifest = DatasetManifest(
        "support.faulty_envs:Faulty-v0",
        "random",
        4,
        {"how": "die", "path": str(tmp_path / "resets")},
        shards=2,
    )
    with pytest.raises(
        UserError, match=r"a process that was writing .* died: the same command continues"
    ):
        scripted_dataset.write_dataset(tmp_path / "set", manifest, 2)
    scripted_dataset.write_dataset(tmp_path / "set", manifest)  # only the first environment dies
    assert [t.total_reward for t in demonstrations.read(tmp_path / "set")] == [3.0] * 4


def test_the_index_agrees_with_the_records(wordle: Path):
    stats = np.array(
        [(t.total_reward, len(t.turns), int(bool(t.success))) for t in demonstrations.read(wordle)]
    )
    assert np.array_equal(stats, np.array(dataset_index(wordle).tolist()))
