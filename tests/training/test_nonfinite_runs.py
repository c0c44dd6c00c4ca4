"""A run whose updates are not finite stops, keeps what is good and saves what it stumbled over."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest
from support import letters_config

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.learner.learning_rate import LearningRate
from agentrl_jax.learner.optimizer import AdamWConfig, OptaxConfig, OptimizerConfig
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.storage import trajectory_log
from agentrl_jax.training import loop
from agentrl_jax.training.config import EvaluationConfig, Experiment
from agentrl_jax.training.nonfinite_updates import NonfiniteUpdates


def nan_updates(learning_rate: optax.Schedule) -> optax.GradientTransformation:
    return optax.scale(float("nan"))


def experiment(optimizer: OptimizerConfig, checkpoint_every: int) -> Experiment:
    config = letters_config.get_config()
    phase = config.phases["sft"]
    phase.algorithm = BehaviorCloningConfig(optimizer=optimizer, bin_length=32, microbatch=4)
    phase.steps, phase.checkpoint_every = 8, checkpoint_every
    config.phases = {"sft": phase}
    config.evaluation = EvaluationConfig(episodes=0, players=())
    return config


@pytest.mark.slow
def test_a_run_that_overflows_stops_and_keeps_its_last_good_checkpoint(tmp_path: Path):
    """The first step makes weights of 1e38, with which no later loss is finite."""
    config = experiment(AdamWConfig(learning_rate=1e38), checkpoint_every=1)
    with pytest.raises(UserError, match=r"4 updates in a row .* step 4 of sft \(nonfinite in"):
        loop.train(config, tmp_path, quiet=True, max_nonfinite_updates=4)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["nonfinite"] for line in lines] == [0, 1, 1, 1, 1]
    episodes = list(trajectory_log.read(tmp_path / "nonfinite" / "sft-4.jsonl"))
    assert len(episodes) == 10 and all(record.step == 4 for record in episodes)
    steps = {path.name for path in (tmp_path / "checkpoints" / "sft").iterdir() if path.is_dir()}
    assert steps == {"1", "3", "4"}  # the good one, and the newest two


@pytest.mark.slow
def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path):
    optimizer = OptaxConfig(nan_updates, LearningRate(1e-3))
    with pytest.raises(UserError, match=r"weights are not finite after step 1 of sft, so no"):
        loop.train(experiment(optimizer, 1), tmp_path, quiet=True)
    assert not list((tmp_path / "checkpoints" / "sft").glob("[0-9]*"))
    assert (tmp_path / "nonfinite" / "sft-0.jsonl").exists()


def test_initial_weights_that_are_not_finite_end_a_run_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    initial = Decoder.init
    monkeypatch.setattr(
        Decoder, "init", lambda *args: jax.tree.map(lambda x: x * jnp.nan, initial(*args))
    )
    with pytest.raises(UserError, match="the weights with which sft starts are not finite"):
        loop.train(experiment(AdamWConfig(1e-3), 1), tmp_path, quiet=True)
    assert not (tmp_path / "metrics.jsonl").read_text()


def test_updates_are_counted_in_a_row_and_for_each_learner():
    def updates(*values: int) -> list[dict[str, float]]:
        return [{"nonfinite": float(value)} for value in values]

    counts = NonfiniteUpdates(3)
    assert not counts.add("device", updates(1, 1, 0, 1, 1)) and counts.any_since_checkpoint
    assert not counts.add("critic", updates(1, 1))
    assert counts.add("critic", updates(1)) and counts.add("device", updates(1, 0))
    assert not counts.add("device", updates(1, 1))
