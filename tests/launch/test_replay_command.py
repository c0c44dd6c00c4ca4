"""`agentrl-replay`: a run's recorded calls are sampled again from its checkpoints, and compared."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import assert_one_clear_sentence, run
from support.small_runs import rollout_source, small_experiment

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.launch import replaying
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.storage.line_checksum import without_checksum
from agentrl_jax.training import loop
from agentrl_jax.training.config import EvaluationConfig, Experiment, Phase
from agentrl_jax.training.sources import Demonstrations

CALLS_OF_A_STEP = 3 * 2 * 3  # tasks, members of a group, turns


def run_with_checkpoints() -> Experiment:
    """A step of GRPO from the initial weights; cloning; GRPO, of which the last two are kept."""
    experiment = small_experiment(rollout_source(), steps=4, checkpoint_every=1)
    rl = experiment.phases["rl"]
    cloning = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)
    experiment.phases = {
        "fresh": dataclasses.replace(rl, label="FRESH", steps=1),
        "sft": Phase("SFT", Demonstrations(8), cloning, steps=30),
        "rl": rl,
    }
    experiment.evaluation = EvaluationConfig(episodes=0, players=())
    return experiment


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("replay") / "run"
    loop.train(run_with_checkpoints(), run_dir, quiet=True)
    return run_dir


def copy_with_changed_lines(
    run_dir: Path, folder: Path, change: Callable[[dict[str, Any]], None]
) -> Path:
    """A copy of the run, of whose trajectory log each line was changed."""
    shutil.copytree(run_dir, folder)
    (log,) = (folder / "trajectories").iterdir()
    lines = [json.loads(without_checksum(line)) for line in log.read_bytes().splitlines()]
    for line in lines:
        change(line)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.slow
def test_a_run_is_reproduced_from_every_checkpoint_that_it_kept(
    recorded_run: Path, capsys: pytest.CaptureFixture[str]
):
    assert replaying.replay(recorded_run, None, None, 100)
    first, *rest = capsys.readouterr().out.splitlines()
    n = CALLS_OF_A_STEP
    assert first == (
        f"phase rl, agent policy: {2 * n} of {4 * n} recorded calls can be sampled again; "
        f"left out: {2 * n} without a checkpoint of their weights (steps 1-2)"
    )
    assert [line.split(" calls")[0] for line in rest[:-1]] == [
        f"weights of step 0: {n}", f"weights of step 3: {n}",
    ]  # fmt: skip
    assert rest[-1] == "every token is the recorded one"
    # The weights of the two versions differ, and log-probs agree to their last bits.
    assert all(float(line.rsplit(" ", 1)[1]) < 1e-5 for line in rest[:-1])
    assert replaying.replay(recorded_run, "fresh", "policy", 5)  # from the initial weights
    assert "weights of step 0: 5 calls" in capsys.readouterr().out


@pytest.mark.slow
def test_a_changed_token_is_named_and_is_no_near_tie(recorded_run: Path, tmp_path: Path):
    def change(line: dict[str, Any]) -> None:
        action = line["turns"][0]["calls"][0]["action"]
        if (line["phase"], line["step"], line["sample"]) == ("rl", 3, 1):
            action[0] = 0 if action[0] else 1

    changed = copy_with_changed_lines(recorded_run, tmp_path / "changed", change)
    result = run("replay", f"--run_dir={changed}", "--trust=support")
    assert result.returncode == 1, result.stderr
    last = result.stdout.splitlines()[-1]
    assert last.startswith("first mismatch: task support.letter_task:tests/Letters-v0#")
    assert "step 3, sample 1, agent policy, turn 0, position 0: recorded " in last
    assert float(last.split(", margin ")[1].removesuffix(" nats")) > 1e-3


@pytest.mark.slow
def test_what_cannot_be_sampled_again_is_refused(recorded_run: Path, tmp_path: Path):
    refused = {"polish": "no phase 'polish'", "sft": "holds no call"}
    for phase, words in refused.items():
        with pytest.raises(UserError, match=words):
            replaying.replay(recorded_run, phase, None, 100)

    def publish_in_the_middle(line: dict[str, Any]) -> None:
        for turn in line["turns"]:
            for call in turn["calls"]:
                call["version"] = [*call["version"][:-1], 77]

    mixed = copy_with_changed_lines(recorded_run, tmp_path / "mixed", publish_in_the_middle)
    with pytest.raises(UserError, match=r"nothing in .* can be sampled again: 0 of .*published"):
        replaying.replay(mixed, "rl", None, 100)

    def add_unknown_token(line: dict[str, Any]) -> None:
        line["turns"][0]["calls"][0]["prompt"][0] = 10**6

    unknown = copy_with_changed_lines(recorded_run, tmp_path / "unknown", add_unknown_token)
    with pytest.raises(UserError, match="other tokens than the vocabulary's"):
        replaying.replay(unknown, "rl", None, 100)
    shutil.rmtree(mixed / "checkpoints")
    assert_one_clear_sentence(run("replay", f"--run_dir={mixed}", "--trust=support"), "checkpoint")


@pytest.mark.slow
def test_a_run_must_be_named():
    assert_one_clear_sentence(run("replay"), "--run_dir")


def test_steps_are_written_as_ranges():
    assert replaying.ranges_text([7, 1, 2, 3]) == "1-3, 7"
