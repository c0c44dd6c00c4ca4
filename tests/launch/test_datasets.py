"""`agentrl-data` and `agentrl-bench steps`: files, reports, and errors for wrong flags."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import assert_one_clear_sentence, run

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.env_steps import PUBLISHED_ENVS, Stepping
from agentrl_jax.launch.benchmarks.split_overlap import SplitOverlap
from agentrl_jax.launch.datasets import DataSet
from agentrl_jax.storage.dataset_folder import read_manifest
from agentrl_jax.storage.folder_lock import exclusive_lock
from agentrl_jax.training.demonstrations import read


def test_a_published_dataset_is_written_and_compared_with_its_published_statistics(tmp_path: Path):
    flags: dict[str, Any] = {
        "task": "wordle",
        "records": 30,
        "option": ("words=20",),
        "validation": 5,
        "processes": 1,
        "shards": 2,
    }
    table = DataSet(**flags, out=str(tmp_path)).run().splitlines()
    train, validation = read(tmp_path / "train"), read(tmp_path / "validation")
    assert (len(train), len(validation)) == (30, 5) and not {t.task for t in train} & {
        t.task for t in validation
    }
    manifest = read_manifest(tmp_path / "train")
    assert (manifest.player, manifest.options, manifest.shards) == ("mixture", {"words": 20}, 2)
    returns = np.array([t.total_reward for t in train])
    turns, success = (
        np.mean([len(t.turns) for t in train]),
        np.mean([bool(t.success) for t in train]),
    )
    cells = [cell.strip() for cell in table[2].split("|")]
    assert cells[1:6] == [
        "train",
        "30",
        f"{turns:.1f}",
        f"{success:.2f}",
        f"{returns.mean():.3g} ({returns.std():.3g})",
    ]
    assert (
        re.fullmatch(r"[\d,]+", cells[7])
        and table[-1] == "| published | 1,000,000 | 4.82 | 0.70 | -4.12 (1.59) | | |"
    )
    again = (
        DataSet(**flags, out=str(tmp_path)).run().splitlines()
    )  # nothing is played, so there is no rate
    assert [cell.strip() for cell in again[2].split("|")] == [*cells[:7], "", ""]


def test_any_environment_with_scripted_policies_makes_a_dataset(tmp_path: Path):
    table = DataSet(
        environment="agentrl/Chain-v0",
        player="random",
        records=4,
        validation=0,
        processes=1,
        out=str(tmp_path),
    ).run()
    assert (
        len(table.splitlines()) == 3
        and len(read(tmp_path / "train")) == 4
        and not (tmp_path / "validation").exists()
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"task": "wordle"}, "--out=data/wordle"),
        ({"out": "x"}, "one of --task=wordle and --environment"),
        (
            {"out": "x", "task": "wordle", "environment": "agentrl/Wordle-v0"},
            "one of --task=wordle and --environment",
        ),
        ({"out": "x", "task": "go"}, "--task=go: there is no such dataset, only maze_fo"),
        ({"out": "x", "environment": "agentrl/Wordle-v0"}, "--environment needs --records"),
        ({"out": "x", "task": "wordle", "option": ("words",)}, "not of the form name=value"),
        ({"out": "x", "task": "wordle", "player": "nobody"}, "has no scripted policy 'nobody'"),
        (
            {"out": "/proc/nowhere", "task": "wordle"},
            "the folder /proc/nowhere cannot be written",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_reported_in_one_sentence(
    flags: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=re.escape(sentence)):
        DataSet(**flags).run()


@pytest.mark.slow
def test_the_command_writes_with_several_processes_and_reports_errors_in_one_sentence(
    tmp_path: Path,
):
    done = run("data", "--task=maze_fo", "--records=6", "--shards=2", f"--out={tmp_path / 'set'}")
    assert (
        done.returncode == 0
        and "| published | 1,240 |" in done.stdout
        and len(read(tmp_path / "set" / "train")) == 6
    )
    assert_one_clear_sentence(
        run("data", "--task=maze_fo", "--records=7", f"--out={tmp_path / 'set'}"),
        "another dataset",
        "records",
    )


def test_the_bench_of_steps_times_a_scripted_policys_steps():
    bench = Stepping(
        environment=("agentrl/Wordle-v0", "agentrl/MazeFO-v0"), episodes=2, num_envs=2, seconds=0.2
    )
    report = bench.run()
    assert (
        set(report["steps_per_second"]) == {"Wordle-v0", "MazeFO-v0"} and len(PUBLISHED_ENVS) == 9
    )
    assert all(alone > 100 and worker > 10 for alone, worker in report["steps_per_second"].values())


def test_the_bench_of_splits_counts_what_a_test_split_shares_with_training():
    bench = SplitOverlap(
        environment="agentrl/TextCraft-v0",
        option=("tasks=5", "depth=1"),
        test_option=("first=3",),
        train_episodes=10,
        test_episodes=4,
    )
    report = bench.run()
    expected = {"train": 10, "train_distinct": 5, "test": 4, "test_distinct": 4, "test_in_train": 2}
    assert report["openings"] == report["episodes"] == expected
    with pytest.raises(UserError, match="--player must be one of random, mixture, expert"):
        SplitOverlap(player="nobody").run()


def test_a_seed_of_a_dataset_is_bounded(tmp_path: Path):
    dataset = DataSet(environment="agentrl/Wordle-v0", seed=2**63, records=1, out=str(tmp_path))
    with pytest.raises(UserError, match="--seed must be from 0 to 9,223,372,036,854,775,807"):
        dataset.run()


def test_a_folder_that_another_command_has_locked_is_left_alone(tmp_path: Path):
    dataset = DataSet(task="maze_fo", records=2, out=str(tmp_path))
    with (
        exclusive_lock(tmp_path, "training"),
        pytest.raises(UserError, match="another command is training in"),
    ):
        dataset.run()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
