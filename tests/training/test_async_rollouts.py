"""Asynchronous rollouts: equal to synchronous ones without staleness, reproducible on a virtual
clock, and unbiased by the length of episodes.
"""

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from support.fixtures import on_first_device
from support.small_runs import (
    LearnerlessRun,
    async_source,
    logged_metrics,
    partial_context,
    rollout_source,
    small_experiment,
)
from support.untimed import without_times

from agentrl_jax.algorithms.experience.schedules import IntervalSchedule
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import load_params
from agentrl_jax.rollout.virtual_clock import VirtualClock
from agentrl_jax.storage import trajectory_json
from agentrl_jax.training import loop
from agentrl_jax.training.async_rollouts import AsyncRolloutIterator, AsyncRollouts
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.consumed_tasks import ConsumedTasks
from agentrl_jax.training.run import Run
from agentrl_jax.training.sources import Rollouts
from agentrl_jax.trajectories import Group
from agentrl_jax.workers.latency import EnvLatency

SLOW = EnvLatency(2.0)  # of a reply, where a call and a training step take 1


def encoded(groups: list[Group]) -> list[Any]:
    return [
        [
            json.dumps(without_times(trajectory_json.encode(t.replace(group=0))), sort_keys=True)
            for t in group.trajectories
        ]
        for group in groups
    ]


@pytest.mark.parametrize("clock", [VirtualClock(), None], ids=["virtual", "real"])
def test_without_staleness_the_groups_are_those_of_synchronous_rollouts(
    tmp_path: Path, clock: VirtualClock | None
):
    asynchronous = LearnerlessRun(tmp_path, async_source(0), clock=clock).run()
    synchronous = LearnerlessRun(tmp_path, rollout_source(), clock=None).run()
    assert [(step, encoded(groups)) for step, groups in asynchronous.consumed_groups] == [
        (step, encoded(groups)) for step, groups in synchronous.consumed_groups
    ]
    assert all(v == (step,) for step, _, v in asynchronous.versions)


def test_two_runs_on_the_virtual_clock_are_equal(tmp_path: Path):
    first, second = (
        LearnerlessRun(tmp_path / str(i), async_source(2), latency=SLOW, writes_log=False).run()
        for i in range(2)
    )
    assert [(step, encoded(groups)) for step, groups in first.consumed_groups] == [
        (step, encoded(groups)) for step, groups in second.consumed_groups
    ]
    assert first.metrics == second.metrics and first.iterator_states == second.iterator_states
    assert first.tasks != sorted(first.tasks)  # some groups overtook others


@pytest.mark.parametrize("staleness", [1, 2, 4])
def test_tokens_are_at_most_staleness_versions_old_and_rollouts_continue_under_new_weights(
    tmp_path: Path, staleness: int
):
    run = LearnerlessRun(
        tmp_path, async_source(staleness), steps=12, latency=SLOW, writes_log=False
    ).run()
    ages = [step - min(versions) for step, _, versions in run.versions]
    assert (
        0 < max(ages) <= staleness
        and min(step - max(versions) for step, _, versions in run.versions) >= 0
    )
    assert any(len(versions) > 1 for _, _, versions in run.versions)
    assert sorted(run.tasks) == list(range(36))
    assert max(metrics["stream/oldest"] for metrics in run.metrics) <= staleness


@pytest.mark.slow
def test_with_slow_environments_asynchronous_rollouts_take_less_time(tmp_path: Path):
    """In virtual seconds, with the same environments, engine and learner, ten steps each."""

    def seconds(source: AsyncRollouts | Rollouts) -> float:
        run = LearnerlessRun(
            tmp_path,
            source,
            steps=10,
            clock=VirtualClock(call_seconds=1.0, step_seconds=10.0),
            latency=SLOW,
            writes_log=False,
        ).run()
        return run.runtime.loop.time()

    synchronous, not_stale, stale = (
        seconds(rollout_source()),
        seconds(async_source(0)),
        seconds(async_source(2)),
    )
    assert not_stale == pytest.approx(synchronous)
    assert stale < 0.6 * synchronous


def test_long_episodes_are_consumed_as_often_as_they_are_started(tmp_path: Path):
    run = LearnerlessRun(tmp_path, async_source(3), steps=24, latency=SLOW, writes_log=False).run()
    consumed = [group for _, groups in run.consumed_groups for group in groups]
    turns = {
        g.trajectories[0].group: sum(len(t.turns) for t in g.trajectories) / len(g.trajectories)
        for g in consumed
    }
    assert sorted(turns) == list(range(72))
    last = run.metrics[-1]
    assert (
        last["stream/turns_used"]
        == last["stream/turns_started"]
        == pytest.approx(np.mean(list(turns.values())))
    )
    assert (
        last["time/group_used"] == pytest.approx(last["time/group_started"])
        and last["stream/overtaking"] == 0
    )
    assert max(m["stream/overtaking"] for m in run.metrics) > 0
    assert (
        run.metrics[1]["stream/turns_used"] < last["stream/turns_used"] - 1
    )  # short ones are consumed first
    gaps = [m["stream/turns_started"] - m["stream/turns_used"] for m in run.metrics[-8:]]
    assert max(map(abs, gaps)) < 0.5


def test_no_task_is_consumed_twice():
    tasks = ConsumedTasks()
    for task, turns in ((0, 2.0), (2, 4.0)):
        tasks.consume(task, [1.0, 1.0, turns, 10.0 * turns])
    assert tasks.unconsumed() == ([1], 3)
    expected = {"stream/overtaking": 1.0, "stream/turns_used": 3.0, "stream/turns_started": 2.0}
    assert tasks.metrics() == expected | {"time/group_used": 30.0, "time/group_started": 20.0}
    restored = ConsumedTasks.from_state(json.loads(json.dumps(tasks.state())))
    assert restored == tasks
    for task in (0, 2):
        with pytest.raises(AssertionError, match="twice"):
            restored.consume(task, [1.0] * 4)
    restored.consume(1, [1.0, 1.0, 6.0, 60.0])
    assert (restored.first_unconsumed, restored.consumed_ahead, restored.totals) == (
        3,
        {},
        [3.0, 3.0, 12.0, 120.0],
    ) and restored.unconsumed() == ([], 3)


@pytest.mark.slow
@pytest.mark.parametrize("clock", [VirtualClock(), None], ids=["virtual", "real"])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_groups_in_flight_at_a_checkpoint_are_played_again_and_no_task_is_used_twice(
    tmp_path: Path, stop: int, clock: Any
):
    before = LearnerlessRun(
        tmp_path, async_source(2), 8, clock, latency=EnvLatency(2.0) if clock else EnvLatency()
    ).run(end_step=stop)
    state = json.loads(json.dumps(before.iterator_states[-1]))
    after = LearnerlessRun(
        tmp_path, async_source(2), 8, clock, latency=EnvLatency(2.0) if clock else EnvLatency()
    ).run(stop, state)
    assert sorted(before.tasks + after.tasks) == list(range(24))
    assert all(0 <= step - min(v) <= 2 for step, _, v in before.versions + after.versions)
    used = before.consumed_groups + after.consumed_groups
    expected_seeds = {
        t: t.seed
        for _, groups in LearnerlessRun(tmp_path, rollout_source(), 8).run().consumed_groups
        for g in groups
        for t in g.trajectories
    }
    assert sorted(t.seed for _, groups in used for g in groups for t in g.trajectories) == sorted(
        expected_seeds.values()
    )


@pytest.mark.slow
def test_a_run_resumed_from_a_drained_checkpoint_equals_an_uninterrupted_one(tmp_path: Path):
    def make_run() -> LearnerlessRun:
        return LearnerlessRun(
            tmp_path,
            async_source(2, drain_at_checkpoints=True),
            steps=12,
            latency=SLOW,
            drain_every=4,
            writes_log=False,
        )

    uninterrupted = make_run().run()
    before = make_run().run(end_step=6)  # killed after the checkpoint at step 4
    after = make_run().run(4, json.loads(json.dumps(before.iterator_states[3])))
    assert [encoded(groups) for _, groups in before.consumed_groups[:4]] == [
        encoded(groups) for _, groups in uninterrupted.consumed_groups[:4]
    ]
    assert [encoded(groups) for _, groups in after.consumed_groups] == [
        encoded(groups) for _, groups in uninterrupted.consumed_groups[4:]
    ]
    assert (
        after.metrics == uninterrupted.metrics[4:]
        and after.iterator_states == uninterrupted.iterator_states[4:]
    )
    assert max(step - min(v) for step, _, v in uninterrupted.versions) > 0


def assert_refused(experiment: Experiment, message: str, processes: int = 1) -> None:
    process_group = ProcessGroup()
    process_group.count = processes
    runtime = SimpleNamespace(process_group=process_group)
    with pytest.raises(UserError, match=message):
        experiment.phases["rl"].source.open(partial_context(experiment=experiment, runtime=runtime))


@pytest.mark.parametrize(
    ("sizes", "first", "engines", "is_refused"),
    [
        ({"tensor": 2}, 0, 1, True),
        ({"tensor": 2}, 4, 1, False),
        ({"tensor": 2}, 2, 1, False),
        ({"expert": 2}, 1, 1, True),
        ({"tensor": 2}, 2, 2, True),  # the second of two engines
        ({"data": 2}, 0, 1, False),  # its programs have no collectives
    ],
)
def test_an_engine_with_collectives_shares_no_device_with_the_learner_it_runs_beside(
    sizes: dict[str, int], first: int, engines: int, is_refused: bool
):
    experiment = small_experiment(async_source(1))
    experiment.engine.mesh = MeshConfig(**{"data": 1, **sizes})
    experiment.engine.first_device, experiment.engine.engines = first, engines
    devices = [jax.devices()[i] for i in ((4,) if engines > 1 else (0, 1))]
    mesh = Mesh(np.array(devices), ("data",))
    runtime = SimpleNamespace(process_group=ProcessGroup())
    run = partial_context(experiment=experiment, runtime=runtime, mesh=mesh)
    phase = experiment.phases["rl"]
    assert isinstance(phase.source, AsyncRollouts)
    refused = pytest.raises(UserError, match="needs devices apart from the learner's")
    with refused if is_refused else contextlib.nullcontext():
        phase.source._check(run, "rl", phase)


def test_settings_that_do_not_go_together_are_refused():
    assert_refused(small_experiment(async_source(-1)), "staleness >= 0")
    assert_refused(
        small_experiment(async_source(1, tasks=1)), "a task for each process", processes=2
    )
    assert_refused(
        small_experiment(AsyncRollouts(Rollouts(2, max_turns=IntervalSchedule((3, 4), 1)))),
        "without task samplers, max_turns",
    )
    assert_refused(
        small_experiment(async_source(1), record_groups=1), "record_groups must be at least"
    )
    late = small_experiment(async_source(1))
    late.phases["rl"].publish_every = 3
    assert_refused(late, "at least publish_every - 1 = 2")
    with pytest.raises(UserError, match="workers to 0"):
        experiment = small_experiment(async_source(1), clock=VirtualClock())
        experiment.environment.workers = 1
        Run(experiment, Path("nowhere"))


def trained_params(experiment: Experiment, run_dir: Path) -> Any:
    loop.train(experiment, run_dir, quiet=True)
    like = jax.eval_shape(lambda: None)
    with Run(experiment, run_dir, quiet=True) as run:
        like = jax.eval_shape(run.policy.init, jax.random.key(0))
    folder = run_dir / "checkpoints" / "rl"
    return jax.tree.map(np.asarray, load_params(folder, like, on_first_device(like)))


@pytest.mark.slow
def test_without_staleness_training_equals_the_synchronous_one_bit_for_bit(tmp_path: Path):
    asynchronous, synchronous = (
        trained_params(small_experiment(async_source(0)), tmp_path / "a"),
        trained_params(small_experiment(rollout_source()), tmp_path / "b"),
    )
    jax.tree.map(np.testing.assert_array_equal, asynchronous, synchronous)
    lines = [
        {k: v for k, v in line.items() if not k.startswith("stream/")}
        for line in logged_metrics(tmp_path / "a")
    ]
    assert lines == logged_metrics(tmp_path / "b") and any(
        line["groups_with_signal"] for line in lines
    )


@pytest.mark.slow
def test_a_virtual_run_with_a_learner_is_repeated_and_resumed_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def experiment() -> Experiment:
        config = small_experiment(
            async_source(2, drain_at_checkpoints=True),
            steps=6,
            checkpoint_every=3,
            clock=VirtualClock(),
        )
        config.environment.delay = EnvLatency(3.0)
        return config

    first, second = (
        trained_params(experiment(), tmp_path / "a"),
        trained_params(experiment(), tmp_path / "b"),
    )
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert logged_metrics(tmp_path / "a") == logged_metrics(tmp_path / "b")
    assert max(line["staleness"] for line in logged_metrics(tmp_path / "a")) > 0

    class Killed(Exception):
        pass

    steps: list[int] = []

    def fail_at_step_4(self: Any, step: int) -> Any:
        steps.append(step)
        if step == 4:
            raise Killed
        return original(self, step)

    original = AsyncRolloutIterator.next
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(AsyncRolloutIterator, "next", fail_at_step_4)
        loop.train(experiment(), tmp_path / "c", quiet=True)
    third = trained_params(experiment(), tmp_path / "c")
    jax.tree.map(np.testing.assert_array_equal, first, third)
    assert steps == [0, 1, 2, 3, 4] and logged_metrics(tmp_path / "c") == logged_metrics(
        tmp_path / "a"
    )
