"""Training while rollouts go on: as in turns where nothing may be stale, repeatable on a virtual clock, fair to long episodes."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from small_runs import Bare, metrics_of, rollouts, small_run, streaming

from agentrl_jax import journal, loop
from agentrl_jax.algorithms.schedules import Stepped
from agentrl_jax.checkpoint import load_params
from agentrl_jax.delays import Delay
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.hosts import Hosts
from agentrl_jax.run import Run
from agentrl_jax.streaming import Ledger, Streaming
from agentrl_jax.trajectories import Group
from agentrl_jax.virtual_clock import VirtualClock

SLOW = Delay(2.0)  # a world's answer, where a call and a trainer's step take 1


def said(groups: list[Group]) -> list[Any]:
    return [[json.dumps(journal.encode(t.replace(group=0)), sort_keys=True) for t in group.trajectories] for group in groups]


@pytest.mark.parametrize("clock", [VirtualClock(), None], ids=["virtual", "real"])
def test_without_staleness_the_groups_are_those_of_rollouts_in_turns(tmp_path: Path, clock: VirtualClock | None):
    streamed = Bare(tmp_path, streaming(0), clock=clock).go()
    in_turns = Bare(tmp_path, rollouts(), clock=None).go()
    assert [(step, said(groups)) for step, groups in streamed.used] == [(step, said(groups)) for step, groups in in_turns.used]
    assert all(v == (step,) for step, _, v in streamed.versions)


def test_two_runs_on_the_virtual_clock_are_the_same(tmp_path: Path):
    first, second = (Bare(tmp_path / str(i), streaming(2), delay=SLOW, record=False).go() for i in range(2))
    assert [(step, said(groups)) for step, groups in first.used] == [(step, said(groups)) for step, groups in second.used]
    assert first.metrics == second.metrics and first.states == second.states
    assert first.tasks != sorted(first.tasks)  # some overtook others


@pytest.mark.parametrize("staleness", [1, 2, 4])
def test_no_token_is_older_than_it_may_be_and_rollouts_go_on_under_new_weights(tmp_path: Path, staleness: int):
    run = Bare(tmp_path, streaming(staleness), steps=12, delay=SLOW, record=False).go()
    ages = [step - min(versions) for step, _, versions in run.versions]
    assert 0 < max(ages) <= staleness and min(step - max(versions) for step, _, versions in run.versions) >= 0
    assert any(len(versions) > 1 for _, _, versions in run.versions)
    assert sorted(run.tasks) == list(range(36))
    assert max(metrics["stream/oldest"] for metrics in run.metrics) <= staleness


def test_with_slow_worlds_streaming_takes_less_time(tmp_path: Path):
    """In virtual seconds, the same worlds, engine and trainer, ten steps each."""

    def seconds(source: Streaming | Rollouts) -> float:
        run = Bare(tmp_path, source, steps=10, clock=VirtualClock(call=1.0, step=10.0), delay=SLOW, record=False).go()
        return run.runtime.loop.time()

    in_turns, waiting, ahead = seconds(rollouts()), seconds(streaming(0)), seconds(streaming(2))
    assert waiting == pytest.approx(in_turns)
    assert ahead < 0.6 * in_turns


def test_long_episodes_are_used_as_often_as_they_are_started(tmp_path: Path):
    run = Bare(tmp_path, streaming(3), steps=24, delay=SLOW, record=False).go()
    played = [group for _, groups in run.used for group in groups]
    turns = {g.trajectories[0].group: sum(len(t.turns) for t in g.trajectories) / len(g.trajectories) for g in played}
    assert sorted(turns) == list(range(72))
    last = run.metrics[-1]
    assert last["stream/turns_used"] == last["stream/turns_started"] == pytest.approx(np.mean(list(turns.values())))
    assert last["time/group_used"] == pytest.approx(last["time/group_started"]) and last["stream/overtaking"] == 0
    assert max(m["stream/overtaking"] for m in run.metrics) > 0
    assert run.metrics[1]["stream/turns_used"] < last["stream/turns_used"] - 1  # short ones come first, and the others after them
    gaps = [m["stream/turns_started"] - m["stream/turns_used"] for m in run.metrics[-8:]]
    assert max(map(abs, gaps)) < 0.5


def test_the_ledger_refuses_to_use_a_task_twice():
    ledger = Ledger()
    for task, turns in ((0, 2.0), (2, 4.0)):
        ledger.use(task, [1.0, 1.0, turns, 10.0 * turns])
    assert ledger.left() == ([1], 3)
    found = {"stream/overtaking": 1.0, "stream/turns_used": 3.0, "stream/turns_started": 2.0}
    assert ledger.metrics() == found | {"time/group_used": 30.0, "time/group_started": 20.0}
    again = Ledger.of(json.loads(json.dumps(ledger.state())))
    assert again == ledger
    for task in (0, 2):
        with pytest.raises(AssertionError, match="twice"):
            again.use(task, [1.0] * 4)
    again.use(1, [1.0, 1.0, 6.0, 60.0])
    assert (again.first, again.after, again.sums) == (3, {}, [3.0, 3.0, 12.0, 120.0]) and again.left() == ([], 3)


@pytest.mark.parametrize("clock", [VirtualClock(), None], ids=["virtual", "real"])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_what_was_in_flight_at_a_checkpoint_is_played_again_and_nothing_is_used_twice(tmp_path: Path, stop: int, clock: Any):
    before = Bare(tmp_path, streaming(2), 8, clock, delay=Delay(2.0) if clock else Delay()).go(until=stop)
    state = json.loads(json.dumps(before.states[-1]))
    after = Bare(tmp_path, streaming(2), 8, clock, delay=Delay(2.0) if clock else Delay()).go(stop, state)
    assert sorted(before.tasks + after.tasks) == list(range(24))
    assert all(0 <= step - min(v) <= 2 for step, _, v in before.versions + after.versions)
    used = before.used + after.used
    unbroken = {t: t.seed for _, groups in Bare(tmp_path, rollouts(), 8).go().used for g in groups for t in g.trajectories}
    assert sorted(t.seed for _, groups in used for g in groups for t in g.trajectories) == sorted(unbroken.values())


def test_a_run_that_goes_on_from_a_quiet_checkpoint_is_one_that_never_stopped(tmp_path: Path):
    def fresh() -> Bare:
        return Bare(tmp_path, streaming(2, quiet=True), steps=12, delay=SLOW, fence=4, record=False)

    unbroken = fresh().go()
    before = fresh().go(until=6)  # killed after the checkpoint at step 4
    after = fresh().go(4, json.loads(json.dumps(before.states[3])))
    assert [said(groups) for _, groups in before.used[:4]] == [said(groups) for _, groups in unbroken.used[:4]]
    assert [said(groups) for _, groups in after.used] == [said(groups) for _, groups in unbroken.used[4:]]
    assert after.metrics == unbroken.metrics[4:] and after.states == unbroken.states[4:]
    assert max(step - min(v) for step, _, v in unbroken.versions) > 0


def refused(experiment: Experiment, words: str, count: int = 1) -> None:
    hosts = Hosts()
    hosts.count = count
    assert experiment.rl
    run: Any = SimpleNamespace(experiment=experiment, hosts=hosts)
    with pytest.raises(UserError, match=words):
        experiment.rl.source.open(run)


def test_what_does_not_go_together_is_said():
    refused(small_run(streaming(-1)), "staleness >= 0")
    refused(small_run(streaming(1, tasks=1)), "a task for each process", count=2)
    refused(small_run(Streaming(Rollouts(2, turns=Stepped((3, 4), 1)))), "without order, turns")
    refused(small_run(streaming(1), record_groups=1), "record_groups must be at least")
    late = small_run(streaming(1))
    assert late.rl
    late.rl.publish_every = 3
    refused(late, "at least publish_every - 1 = 2")
    with pytest.raises(UserError, match="workers to 0"):
        experiment = small_run(streaming(1), clock=VirtualClock())
        experiment.environment.workers = 1
        Run(experiment, Path("nowhere"))


def trained(experiment: Experiment, run_dir: Path) -> Any:
    loop.train(experiment, run_dir, quiet=True)
    like = jax.eval_shape(lambda: None)
    with Run(experiment, run_dir, quiet=True) as run:
        like = jax.eval_shape(run.policy.init, jax.random.key(0))
    return jax.tree.map(np.asarray, load_params(run_dir / "checkpoints" / "rl", like))


@pytest.mark.slow
def test_without_staleness_training_is_that_in_turns_to_the_bit(tmp_path: Path):
    streamed, in_turns = trained(small_run(streaming(0)), tmp_path / "a"), trained(small_run(rollouts()), tmp_path / "b")
    jax.tree.map(np.testing.assert_array_equal, streamed, in_turns)
    lines = [{k: v for k, v in line.items() if not k.startswith("stream/")} for line in metrics_of(tmp_path / "a")]
    assert lines == metrics_of(tmp_path / "b") and any(line["groups_with_signal"] for line in lines)


@pytest.mark.slow
def test_a_virtual_run_with_a_real_learner_can_be_repeated_and_resumed_to_the_bit(tmp_path: Path):
    def experiment() -> Experiment:
        made = small_run(streaming(2, quiet=True), steps=6, checkpoint_every=3, clock=VirtualClock())
        made.environment.delay = Delay(3.0)
        return made

    first, second = trained(experiment(), tmp_path / "a"), trained(experiment(), tmp_path / "b")
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert metrics_of(tmp_path / "a") == metrics_of(tmp_path / "b")
    assert max(line["staleness"] for line in metrics_of(tmp_path / "a")) > 0

    class Killed(Exception):
        pass

    taken: list[int] = []

    def die(self: Any, step: int) -> Any:
        taken.append(step)
        if step == 4:
            raise Killed
        return real(self, step)

    from agentrl_jax.streaming import StreamFeed

    real, StreamFeed.next = StreamFeed.next, die
    try:
        with pytest.raises(Killed):
            loop.train(experiment(), tmp_path / "c", quiet=True)
    finally:
        StreamFeed.next = real
    third = trained(experiment(), tmp_path / "c")
    jax.tree.map(np.testing.assert_array_equal, first, third)
    assert taken == [0, 1, 2, 3, 4] and metrics_of(tmp_path / "c") == metrics_of(tmp_path / "a")
