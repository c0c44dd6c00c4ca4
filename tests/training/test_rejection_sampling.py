"""Rejection-sampling rounds: what is accepted, with whose weights it was played, and resumption."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from support.small_runs import agent_weights, logged_metrics, rollout_source, small_experiment

from agentrl_jax.algorithms.methods.lmrl_gym import online_filtered_cloning
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningConfig
from agentrl_jax.errors import UserError
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.storage import trajectory_log
from agentrl_jax.storage.digests import forget_digest
from agentrl_jax.training import loop
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.rejection_sampling import RejectionSampling
from agentrl_jax.training.sources import Demonstrations
from agentrl_jax.trajectories import Trajectory

CLONING = BehaviorCloningConfig(optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8)


def won_most_turns(trajectory: Trajectory) -> bool:
    return trajectory.total_reward >= 2


def rounds(batch: int = 4, demonstrations: Demonstrations | None = None) -> RejectionSampling:
    return RejectionSampling(rollout_source(4, 4), 3, batch, won_most_turns, demonstrations)


def evolution(steps: int = 4, demonstrations: Demonstrations | None = None) -> Experiment:
    """Cloning of random demonstrations, then two iterations of AgentEvol from those weights."""
    experiment = small_experiment(rollout_source())
    experiment.phases = {"base": Phase("base", Demonstrations(4), CLONING, 4)}
    for name in ("evolve_1", "evolve_2"):
        source = rounds(demonstrations=demonstrations)
        experiment.phases[name] = Phase(
            name, source, CLONING, steps, checkpoint_every=2, start="base"
        )
    return experiment


def accepted(run_dir: Path, phase: str) -> list[Trajectory]:
    return [x.trajectory for x in trajectory_log.read(run_dir / "accepted" / f"{phase}.jsonl")]


@pytest.mark.slow
def test_an_iteration_starts_from_the_base_and_clones_what_the_last_one_won(tmp_path: Path):
    loop.train(evolution(), tmp_path / "run", quiet=True)
    rollouts = {name: accepted(tmp_path / "run", name) for name in ("evolve_1", "evolve_2")}
    for trajectories in rollouts.values():
        assert len(trajectories) > 4 and all(map(won_most_turns, trajectories))
        assert all(call.source == "sampled" for t in trajectories for call in t.calls)
    assert [t.calls[0].ids.tolist() for t in rollouts["evolve_1"]] != [
        t.calls[0].ids.tolist() for t in rollouts["evolve_2"]
    ]
    # With a vanishing learning rate each iteration ends where the base ended.
    experiment = evolution(1)
    still = dataclasses.replace(CLONING, optimizer=AdamWConfig(1e-30))
    for name in ("evolve_1", "evolve_2"):
        experiment.phases[name].algorithm = still
    loop.train(experiment, tmp_path / "still", quiet=True)
    base, last = (
        agent_weights(experiment, tmp_path / "still", name, "policy")
        for name in ("base", "evolve_2")
    )
    jax.tree.map(np.testing.assert_array_equal, base, last)


@pytest.mark.slow
def test_an_iteration_is_resumed_exactly_from_the_rollouts_it_had(tmp_path: Path):
    demonstrations = Demonstrations(2)
    loop.train(evolution(4, demonstrations), tmp_path / "unbroken", quiet=True)
    loop.train(evolution(2, demonstrations), tmp_path / "stopped", quiet=True)
    config = tmp_path / "stopped" / "config.json"
    config.write_text(config.read_text().replace('"steps": 2', '"steps": 4'))
    forget_digest(config)
    loop.train(evolution(4, demonstrations), tmp_path / "stopped", quiet=True)

    def first_iteration(run: str) -> list[dict]:
        return [line for line in logged_metrics(tmp_path / run) if line["phase"] == "evolve_1"]

    assert first_iteration("unbroken") == first_iteration("stopped")
    assert len(first_iteration("stopped")) == 4


def test_too_few_accepted_rollouts_are_an_error(tmp_path: Path):
    experiment = small_experiment(rollout_source())
    experiment.policy = DecoderConfig(
        layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8
    )
    experiment.phases = {"evolve": Phase("evolve", rounds(batch=999), CLONING, 1)}
    with pytest.raises(UserError, match=r"\d+ of 3 x 4 tasks' rollouts are accepted, fewer than"):
        loop.train(experiment, tmp_path, quiet=True)


@pytest.mark.slow
def test_imitation_of_the_successes_of_each_step_is_a_phase(tmp_path: Path):
    experiment = small_experiment(rollout_source(4, 4), 2)
    experiment.phases["rl"].algorithm = online_filtered_cloning(
        optimizer=AdamWConfig(1e-2), bin_length=32, microbatch=8
    )
    loop.train(experiment, tmp_path, quiet=True)
    assert [line["step"] for line in logged_metrics(tmp_path)] == [0, 1]
