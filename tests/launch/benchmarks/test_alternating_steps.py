"""The cost of what every other step does without, from made-up seconds."""

import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.alternating_steps import (
    WARM_UP,
    alternating_experiment,
    cost_of_switch,
    is_with,
    tiny,
)
from agentrl_jax.launch.benchmarks.invariant_cost import cost_of_checks, switch_checks
from agentrl_jax.launch.benchmarks.recording_cost import SwitchRecording, seconds_of_writing
from agentrl_jax.messages import user
from agentrl_jax.storage import trajectory_log
from agentrl_jax.trajectories import Trajectory
from agentrl_jax.trajectory_record import TrajectoryRecord


def test_the_ratio_is_that_of_steps_with_and_without():
    is_on = np.array([is_with(step) for step in range(24)])
    assert is_on.tolist()[:8] == [True, False, False, True] * 2
    cost = cost_of_switch(np.where(is_on, 2.2, 2.0))
    assert (cost["ratio"], cost["ratio_interval"]) == (1.1, [1.1, 1.1])
    assert cost["seconds_with"]["median"] == 2.2 and cost["seconds_without"]["median"] == 2.0
    noise = np.random.default_rng(0).normal(1, 0.05, 41)  # the last odd one is left out
    low, high = cost_of_switch(noise)["ratio_interval"]
    assert low < 1 < high and high - low < 0.15


def test_checks_are_a_fraction_of_the_steps_that_make_them():
    lines = [
        {"step": step, "time/seconds": 2.0, "time/invariants": 0.02 * is_with(step)}
        for step in range(WARM_UP + 8)
    ]
    cost = cost_of_checks(lines)
    assert cost["fraction"] == 0.01 and cost["checks"]["median"] == 0.02


def test_every_phase_alternates_and_no_advantage_is_zero():
    experiment = alternating_experiment("tiny", switch_checks, 6)
    assert [phase.steps for phase in experiment.phases.values()] == [WARM_UP + 7] * 2
    assert [phase.source.on_policy for phase in experiment.phases.values()] == [False, True]
    assert experiment.evaluation.episodes == 0 and tiny().phases["rl"].steps > 1
    with pytest.raises(UserError, match="--model=huge is none of tiny, base"):
        alternating_experiment("huge", SwitchRecording(2), 6)


def test_the_records_of_each_step_are_written_again(tmp_path):
    trajectory = Trajectory((user("Hi\n"),), (), task="t", seed=1)
    records = [TrajectoryRecord("rl", step, trajectory) for step in (4, 4, 7)]
    seconds, sizes = seconds_of_writing(records, tmp_path / "again")
    assert len(seconds) == 2 and min(seconds) > 0
    assert len(sizes) == 3 and sum(sizes) == (tmp_path / "again").stat().st_size
    assert [x.step for x in trajectory_log.read(tmp_path / "again")] == [4, 4, 7]
