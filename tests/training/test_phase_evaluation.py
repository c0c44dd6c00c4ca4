"""Evaluations while training: held-out tasks, the best checkpoint, early stopping, resumption."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fixtures import trees_equal
from support.interruptions import interrupted_at
from support.small_runs import logged_metrics, rollout_source, small_experiment

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.launch import players
from agentrl_jax.launch.exporting import export_policy
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.storage import config_json
from agentrl_jax.training import loop
from agentrl_jax.training.best_checkpoint import BestCheckpointConfig, BestSoFar, metric_value
from agentrl_jax.training.builders import load_policy
from agentrl_jax.training.config import EvaluationConfig, Experiment
from agentrl_jax.training.config_checks import check_phases
from agentrl_jax.training.phase_evaluator import heldout_tasks
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.training.task_file import TaskFile

RETURN = BestCheckpointConfig("evaluation/return")


def observed(config: BestCheckpointConfig, *values: float) -> BestSoFar:
    """After evaluations with these values, each after ten more steps."""
    best = BestSoFar()
    for i, value in enumerate(values, 1):
        best = best.observe(config, 10 * i, value)
    return best


@pytest.mark.parametrize(
    ("fields", "values", "step", "without_improvement"),
    [
        ({}, (1.0, 3.0, 2.0), 20, 1),
        ({}, (1.0, 1.0), 10, 1),  # a tie keeps the earlier one
        ({"minimize": True}, (1.0, 3.0, 0.5), 30, 0),
        ({"min_improvement": 0.5}, (1.0, 1.5, 1.4), 10, 2),
        (
            {"min_improvement": 0.5},
            (1.0, 1.25, 1.75),
            30,
            0,
        ),  # compared with the best, not the last
        ({}, (math.nan, -2.0, math.inf), 20, 1),  # what is not finite is never the best
        ({}, (math.nan,), None, 1),
    ],
)
def test_the_best_step_follows_the_metric(
    fields: dict[str, Any], values: tuple[float, ...], step: int | None, without_improvement: int
):
    best = observed(dataclasses.replace(RETURN, **fields), *values)
    assert (best.step, best.without_improvement, best.evaluations) == (
        step,
        without_improvement,
        len(values),
    )
    assert BestSoFar(**json.loads(json.dumps(best.to_json()))) == best


def test_a_phase_stops_after_so_many_evaluations_in_a_row_without_a_new_best():
    patient = dataclasses.replace(RETURN, patience=2)
    stops = [
        observed(patient, *values).is_exhausted(patient)
        for values in ((1.0,), (1.0, 0.0), (1.0, 0.0, 0.5), (1.0, 0.0, 2.0), (1.0, 0.0, 2.0, 0.0))
    ]
    assert stops == [False, False, True, False, False]
    assert not observed(RETURN, 1.0, 0.0, 0.0, 0.0).is_exhausted(RETURN)


def test_a_metric_that_no_evaluation_has_is_an_error_that_lists_those_there_are():
    with pytest.raises(UserError, match="no metric 'evaluation/return', only evaluation/turns"):
        metric_value(RETURN, {"evaluation/turns": 1.0}, "rl")


def with_evaluation(**fields: Any) -> Experiment:
    experiment = small_experiment(rollout_source())
    experiment.evaluation = EvaluationConfig(3, seed=7, players=(), training_episodes=2)
    for name, value in fields.items():
        setattr(experiment.phases["rl"], name, value)
    return experiment


def test_its_tasks_are_none_of_the_evaluation_after_the_phase(tmp_path: Path):
    experiment = with_evaluation()
    seeds = [task.seed for task in heldout_tasks(experiment.environment, "", experiment)]
    assert seeds == [3_000_000_000, 3_000_000_001]
    experiment.evaluation.training_seed = 8  # of the evaluation after the phase are 7, 8, 9
    seeds = [task.seed for task in heldout_tasks(experiment.environment, "", experiment)]
    assert seeds == [10, 11]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"seed": {n}}}\n' for n in range(4)))
    names = [task.name for task in heldout_tasks(TaskFile(str(path)), "", experiment)]
    assert [name.partition("#")[2] for name in names] == ["record3"]
    path.write_text("".join(f'{{"seed": {n}}}\n' for n in range(3)))
    with pytest.raises(UserError, match="plays all 3 tasks of 'file': lower"):
        heldout_tasks(TaskFile(str(path)), "file", experiment)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"evaluate_every": -1}, "must be at least 0"),
        ({"best": RETURN}, "best.metric needs evaluate_every"),
        ({"evaluate_every": 1, "best": BestCheckpointConfig(patience=1)}, "need a metric"),
        ({"evaluate_every": 1, "best": BestCheckpointConfig(restore=True)}, "need a metric"),
        ({"evaluate_every": 3, "publish_every": 2}, "must be a multiple of that"),
        (
            {"evaluate_every": 1, "best": BestCheckpointConfig("x", min_improvement=math.inf)},
            "must be finite",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused_before_anything_is_built(
    fields: dict[str, Any], message: str
):
    with pytest.raises(UserError, match=message):
        check_phases(with_evaluation(**fields))


def test_overlapping_seeds_are_refused():
    experiment = with_evaluation(evaluate_every=1)
    check_phases(experiment)
    experiment.evaluation.training_seed = 9
    with pytest.raises(UserError, match="set training_seed further away"):
        check_phases(experiment)


def test_a_config_without_it_has_the_digest_of_one_from_before():
    data = config_json.to_json(with_evaluation().phases["rl"])
    assert not {"evaluate_every", "best"} & data["fields"].keys()
    phase = with_evaluation(evaluate_every=2, best=RETURN).phases["rl"]
    fields = config_json.to_json(phase)["fields"]
    assert fields["evaluate_every"] == 2
    assert fields["best"]["fields"]["metric"] == "evaluation/return"


def cloning(**best: Any) -> Experiment:
    """Four steps that raise the return of a fresh policy, each evaluated; a checkpoint each."""
    experiment = small_experiment(rollout_source(), steps=4, checkpoint_every=1)
    assert experiment.demonstrations is not None
    experiment.demonstrations.player = "expert"
    experiment.phases["rl"].evaluate_every = 1 if best else 0
    experiment.phases["rl"].best = BestCheckpointConfig(**best)
    return experiment


@pytest.fixture(scope="module")
def worst_kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose first evaluation is the best, since no other is better by so much."""
    run_dir = tmp_path_factory.mktemp("kept") / "run"
    loop.train(cloning(metric="evaluation/return", min_improvement=100.0), run_dir, quiet=True)
    return run_dir


def without_evaluation(run_dir: Path) -> list[dict[str, Any]]:
    return [
        {name: x for name, x in line.items() if not name.startswith("evaluation/")}
        for line in logged_metrics(run_dir)
    ]


@pytest.mark.slow
def test_the_best_checkpoint_is_kept_and_training_is_that_of_a_run_without(
    worst_kept: Path, tmp_path: Path
):
    assert sorted(path.name for path in (worst_kept / "checkpoints/rl").iterdir()) == [
        "1",
        "3",
        "4",
    ]
    lines = logged_metrics(worst_kept)
    assert all("evaluation/return" in line and "evaluation/success" in line for line in lines)
    best = load_policy(worst_kept, best=True)[3]
    newest = load_policy(worst_kept)[3]
    assert not trees_equal(best, newest)
    loop.train(cloning(), tmp_path / "plain", quiet=True)
    assert logged_metrics(tmp_path / "plain") == without_evaluation(worst_kept)
    assert trees_equal(load_policy(tmp_path / "plain")[3], newest)
    with pytest.raises(UserError, match=r"no checkpoint in .* is the best"):
        load_policy(tmp_path / "plain", best=True)
    summary = json.loads((worst_kept / "summary.json").read_text())["best_checkpoints"]["rl"]
    assert (summary["best_step"], summary["evaluations"]) == (1, 4)
    assert summary["best_value"] == lines[0]["evaluation/return"]
    assert "best_checkpoints" not in json.loads((tmp_path / "plain/summary.json").read_text())


@pytest.mark.slow
def test_commands_read_the_checkpoint_that_is_named(worst_kept: Path, tmp_path: Path):
    environment = cloning().environment
    checkpoints = [players.Checkpoint(worst_kept, best=best) for best in (True, None)]
    episodes = [
        players.play_episodes(environment, None, checkpoint, 4, 3_000_000_000, 1.0)
        for checkpoint in checkpoints
    ]
    assert [t.calls[0].action.tolist() for t in episodes[0]] != [
        t.calls[0].action.tolist() for t in episodes[1]
    ]
    export_policy(worst_kept, tmp_path / "best", "float32", best=True)
    export_policy(worst_kept, tmp_path / "newest", "float32", best=False)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("best", "newest")]
    assert weights[0] != weights[1]


def evaluated_logps(run_dir: Path) -> list[Any]:
    """The log-probs of the calls in the evaluation after the phase."""
    lines = (run_dir / "evaluations/RL.jsonl").read_text().splitlines()
    turns = [turn for line in lines for turn in json.loads(line)["turns"]]
    return [np.float32(call["sampler_logp"]).tolist() for turn in turns for call in turn["calls"]]


def logps_of(checkpoint: players.Checkpoint) -> list[list[float]]:
    """The same of a checkpoint in the same episodes."""
    experiment = cloning()
    config = experiment.evaluation
    trajectories = players.play_episodes(
        experiment.environment, None, checkpoint, config.episodes, config.seed, 1.0
    )
    return [call.sampler_logp.tolist() for t in trajectories for call in t.calls]


@pytest.mark.slow
def test_a_phase_stops_early_ends_with_its_best_weights_and_resumes_exactly(tmp_path: Path):
    best = {
        "metric": "evaluation/return",
        "min_improvement": 100.0,
        "patience": 2,
        "restore": True,
    }
    table = loop.train(cloning(**best), tmp_path / "unbroken", quiet=True)
    with interrupted_at("rl", 1):
        loop.train(cloning(**best), tmp_path / "run", quiet=True)
    assert loop.train(cloning(**best), tmp_path / "run", quiet=True) == table
    lines = logged_metrics(tmp_path / "run")
    assert lines == logged_metrics(tmp_path / "unbroken")
    assert [line["step"] for line in lines] == [0, 1, 2]  # of four
    summary = json.loads((tmp_path / "run/summary.json").read_text())["best_checkpoints"]["rl"]
    assert (summary["stopped_early_after"], summary["best_step"]) == (3, 1)
    restored, newest = (load_policy(tmp_path / "run", best=best)[3] for best in (None, False))
    assert trees_equal(restored, load_policy(tmp_path / "run", best=True)[3])
    assert not trees_equal(restored, newest)
    logps = evaluated_logps(tmp_path / "run")
    assert logps == logps_of(players.Checkpoint(tmp_path / "run", best=True))
    assert logps != logps_of(players.Checkpoint(tmp_path / "run", best=False))


@pytest.mark.slow
def test_a_phase_that_does_not_sample_is_evaluated_with_its_newest_weights(tmp_path: Path):
    experiment = cloning(metric="evaluation/return")
    experiment.evaluation.temperature = 0.0  # so that equal weights play equally
    algorithm = BehaviorCloningConfig(optimizer=AdamWConfig(3e-2), bin_length=32, microbatch=8)
    experiment.phases["rl"] = dataclasses.replace(
        experiment.phases["rl"], source=Demonstrations(8), algorithm=algorithm
    )
    table = loop.train(experiment, tmp_path, quiet=True)
    returns = [line["evaluation/return"] for line in logged_metrics(tmp_path)]
    assert len(set(returns)) > 1 and returns[-1] > returns[0]
    (row,) = [row for row in table if row.name == "RL"]
    assert row.mean_return > returns[0]
