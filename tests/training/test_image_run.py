"""A run of a policy that sees: learner and sampler agree, and the log replays with its images."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs import count_squares_grpo
from agentrl_jax.inference.engine_pool import make_engine
from agentrl_jax.inference.replay_check import check_replay
from agentrl_jax.learner.image_rows import ImageRows
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.storage import trajectory_log
from agentrl_jax.storage.jsonl import read_lines
from agentrl_jax.training.builders import load_tokenizer
from agentrl_jax.training.config import EvaluationConfig, Experiment, Phase
from agentrl_jax.training.loop import train
from agentrl_jax.training.replay import PhaseWeights
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectory_record import TrajectoryRecord


def small_experiment() -> Experiment:
    """The example's, with few and small steps; the learner scores what was sampled."""
    experiment = count_squares_grpo.get_config("smoke")
    method = grpo(
        bin_length=count_squares_grpo.MAX_LENGTH,
        microbatch=8,
        rescore=True,
        images=ImageRows(count_squares_grpo.PROCESSOR, 2 * count_squares_grpo.PATCHES),
    )
    rollouts = Rollouts(tasks=4, strategy=IndependentEpisodes(4))
    return dataclasses.replace(
        experiment,
        demonstrations=None,
        phases={"rl": Phase("GRPO", rollouts, method, 2)},
        evaluation=EvaluationConfig(episodes=0, players=()),
        engine=dataclasses.replace(experiment.engine, rows=16, batching_delay=0.0),
    )


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images") / "run"
    train(small_experiment(), folder)
    return folder


@pytest.fixture(scope="module")
def records(run_dir: Path) -> list[TrajectoryRecord]:
    return list(trajectory_log.read(run_dir / trajectory_log.FOLDER))


def test_learner_and_sampler_agree_on_prompts_with_images(records: list[TrajectoryRecord]):
    compared = 0
    for record in records:
        assert record.training is not None
        for turn, trained in zip(record.trajectory.turns, record.training.turns):
            for call, of_call in zip(turn.calls, trained.calls):
                assert len(call.images) == len(call.image_spans) == 1
                assert of_call is not None and of_call.logp is not None
                used = of_call.weight != 0
                np.testing.assert_allclose(of_call.logp[used], call.sampler_logp[used], atol=1e-4)
                compared += int(used.sum())
    assert compared > 20


def test_the_log_replays_with_its_images_and_not_with_others(
    run_dir: Path, records: list[TrajectoryRecord]
):
    experiment = small_experiment()
    tokenizer = load_tokenizer(run_dir / "tokenizer")
    weights = PhaseWeights(experiment, run_dir, "rl", "policy")
    policy = experiment.policy.build(len(tokenizer))
    first = [r.trajectory for r in records if r.trajectory.calls[0].version[0] == 0]
    prompter = experiment.agent.renderer(tokenizer).image_prompter
    parts = [t.calls[0].images[0] for t in first]
    other = dict(zip(parts, [*parts[4:], *parts[:4]]))  # those of the next group
    engine = make_engine(policy, experiment.engine, weights.load(0, policy), tokenizer.decode)
    with contextlib.closing(engine):
        report = check_replay(first, engine, prompter.recorded_images)
        assert report.tokens > 20 and report.matching_tokens == report.tokens
        assert report.max_logp_gap == 0

        def permuted(call: Any) -> Any:
            images = tuple(other[part] for part in call.images)
            return prompter.recorded_images(dataclasses.replace(call, images=images))

        swapped = check_replay(first, engine, permuted)
        assert swapped.max_logp_gap > 1e-5 or swapped.matching_tokens < swapped.tokens
        with pytest.raises(ValueError, match="recorded_images"):
            check_replay(first, engine)


def test_images_are_stored_once_and_tokens_are_those_sampled(
    run_dir: Path, records: list[TrajectoryRecord]
):
    tasks = {record.trajectory.task for record in records}
    images = list((run_dir / trajectory_log.FOLDER / "images").iterdir())
    assert len(records) > len(tasks) == len(images) > 1
    metrics = [data for _, data in read_lines(run_dir / "metrics.jsonl")]
    assert {x["tokens/identity"] for x in metrics if "tokens/identity" in x} == {1.0}
