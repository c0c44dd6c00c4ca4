"""`Rollouts`: the tasks of a step, task samplers, turn limits by schedule, and filters that ask for
further rounds.
"""

from typing import Any

import numpy as np
import pytest
from support.fixtures import make_call, make_turn
from support.small_runs import AGENT, partial_context, small_experiment

from agentrl_jax.algorithms.experience.filters import AccuracyBand
from agentrl_jax.algorithms.experience.schedules import (
    IntervalSchedule,
    RaiseOnPlateau,
    SuccessRateSampler,
    half_solved_task_probs,
)
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.invariants import Invariants
from agentrl_jax.messages import user
from agentrl_jax.rollout.episode_counts import EpisodeCounts
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.config import ExperienceIterator
from agentrl_jax.training.sources import MixedIterator, MixedSource, RolloutIterator, Rollouts
from agentrl_jax.training.task_set import TaskSet
from agentrl_jax.trajectories import Group, StopReason, Trajectory
from agentrl_jax.workers.pool import InlinePool, Task


class FakeRuntime(Runtime):
    """Plays nothing: `solved` decides whether episode j of a task succeeds."""

    def __init__(
        self,
        solved: Any = lambda task, j: True,
        turns: int = 1,
        stop_reason: StopReason = "terminated",
    ) -> None:
        self.process_group, self.agents = ProcessGroup(), {"policy": AGENT}
        self.invariants, self.episode_counts = Invariants(), EpisodeCounts()
        self._turn_callbacks = ()
        self.collected: list[tuple[tuple[int, ...], list[int]]] = []
        self.turn_limits: list[int] = []
        self._solved, self._turns = solved, turns
        self._stop_reason: StopReason = stop_reason

    def collect(self, strategy: Any, tasks: list[Any], key: tuple[int, ...]) -> list[Group]:
        self.collected.append((key, [task.seed for task in tasks]))
        self.turn_limits.append(self.agents["policy"].limits.turns)
        turn = make_turn([make_call([1], [2])])
        return [
            Group(
                task.name,
                tuple(
                    Trajectory(
                        (user("?"),),
                        (turn,) * self._turns,
                        success=self._solved(task, j),
                        stop_reason=self._stop_reason,
                    )
                    for j in range(2)
                ),
            )
            for task in tasks
        ]


def make_iterator(rollouts: Rollouts, runtime: FakeRuntime) -> RolloutIterator:
    return RolloutIterator(rollouts, runtime, small_experiment(rollouts))


def test_without_a_fixed_task_set_no_task_is_repeated():
    runtime = FakeRuntime()
    iterator = make_iterator(Rollouts(4), runtime)
    for step in range(5):
        assert len(iterator.next(step)) == 4
    seeds = [seed for _, seeds in runtime.collected for seed in seeds]
    assert len(set(seeds)) == 20 and iterator.state() is None


def test_a_fixed_task_set_is_drawn_from_reproducibly():
    first, second = FakeRuntime(), FakeRuntime()
    for runtime in (first, second):
        iterator = make_iterator(Rollouts(4, task_source=TaskSet(3)), runtime)
        for step in range(6):
            iterator.next(step)
    assert first.collected == second.collected
    assert len({seed for _, seeds in first.collected for seed in seeds}) == 3
    assert len({tuple(seeds) for _, seeds in first.collected}) > 1


def test_failing_tasks_are_sampled_more_often():
    def solved(task: Any, j: int) -> bool:
        return task.seed % 2 == 0

    runtime = FakeRuntime(solved)
    iterator = make_iterator(
        Rollouts(16, task_source=TaskSet(8, SuccessRateSampler(0.1, ema_rate=0.5))), runtime
    )
    for step in range(30):
        iterator.next(step)
    late = [seed for _, seeds in runtime.collected[10:] for seed in seeds]
    assert np.mean([seed % 2 == 1 for seed in late]) > 0.9
    state, again = (
        iterator.state(),
        make_iterator(
            Rollouts(16, task_source=TaskSet(8, SuccessRateSampler(0.1, ema_rate=0.5))),
            FakeRuntime(solved),
        ),
    )
    again.load(state)
    iterator.next(30)
    again.next(30)
    other: Any = again._runtime
    assert other.collected[-1] == runtime.collected[-1]


def test_the_task_sampler_counts_cut_episodes_as_failed():
    class Recorder(SuccessRateSampler):
        def observe(self, tasks: Any, success_rates: Any) -> None:
            observed.append(list(success_rates))

    def rates(outcomes: list[bool | None], stop_reason: Any) -> list[float]:
        runtime = FakeRuntime(lambda task, j: outcomes[j], stop_reason=stop_reason)
        make_iterator(Rollouts(1, task_source=TaskSet(3, Recorder(0.1))), runtime).next(0)
        return observed.pop()

    observed: list[list[float]] = []
    assert rates([True, None], "tokens") == [0.5] and rates([None, None], "context") == [0.0]
    assert rates([True, False], "terminated") == [0.5]
    with pytest.raises(UserError, match="does not say whether it was solved"):
        rates([True, None], "terminated")


def test_half_solved_tasks_are_sampled_by_their_own_distribution():
    order = SuccessRateSampler(0.05, half_solved_task_probs, ema_rate=1.0)
    order.observe([0, 1, 2], [0.0, 0.5, 1.0])
    assert set(order.sample(3, 50, np.random.default_rng(0))) == {1}


def test_turns_are_limited_by_a_schedule_and_only_while_collecting():
    runtime = FakeRuntime()
    iterator = make_iterator(Rollouts(1, max_turns=IntervalSchedule((8, 12, 15), 2)), runtime)
    for step in (0, 1, 2, 5):
        iterator.next(step)
    assert runtime.turn_limits == [8, 8, 12, 15] and runtime.agents["policy"].limits.turns == 0


def test_the_turn_limit_is_raised_once_episodes_stop_growing():
    runtime = FakeRuntime(turns=3)
    iterator = make_iterator(Rollouts(1, max_turns=RaiseOnPlateau((5, 10), patience=2)), runtime)
    for step in range(5):
        iterator.next(step)
    assert runtime.turn_limits == [5, 5, 5, 10, 10]
    again = make_iterator(Rollouts(1, max_turns=RaiseOnPlateau((5, 10), patience=2)), runtime)
    again.load(iterator.state())
    again.next(5)
    assert runtime.turn_limits[-1] == 10


def test_groups_that_a_filter_drops_are_replaced_in_further_rounds():
    def solved(task: Any, j: int) -> bool:
        return j == 0 if task.seed % 2 else True  # half of the tasks have no signal

    runtime = FakeRuntime(solved)
    band = AccuracyBand(0.0, 1.0, include_low=False, include_high=False)
    groups = make_iterator(Rollouts(4, group_filter=band, max_rounds=10), runtime).next(0)
    assert len(groups) == 4 and all(
        {t.success for t in group.trajectories} == {True, False} for group in groups
    )
    assert 1 < len(runtime.collected) <= 10 and len({key for key, _ in runtime.collected}) == len(
        runtime.collected
    )
    few = make_iterator(
        Rollouts(4, group_filter=AccuracyBand(2.0, 3.0), max_rounds=3), FakeRuntime(solved)
    )
    assert few.next(0) == []


def test_settings_that_do_not_go_together_are_refused():
    for wrong in (
        Rollouts(0),
        Rollouts(max_rounds=2),
    ):
        with pytest.raises(UserError, match="rollouts need"):
            wrong.open(partial_context())
    rollouts: Any = Rollouts()
    rollouts.strategy = object()
    with pytest.raises(UserError, match="no rollout strategy"):
        rollouts.open(partial_context())


def test_an_unknown_agent_is_named():
    with Runtime({}, {"policy": AGENT}, InlinePool()) as runtime:
        episode = runtime.episode(Task("agentrl/Chain-v0", 0), "learner", (0,))
        with pytest.raises(UserError, match="no agent is called 'learner'; there are policy"):
            runtime.run(episode)


def test_a_mixed_source_has_the_groups_and_states_of_both():
    runtime = FakeRuntime()

    class PrintingIterator(ExperienceIterator):
        def next(self, step: int) -> list[Group]:
            return [Group("shown", ())]

        def state(self) -> int:
            return 7

    both = MixedIterator(make_iterator(Rollouts(2), runtime), PrintingIterator())
    assert [group.task for group in both.next(0)][2:] == ["shown"]
    assert both.state() == {"rollouts": None, "demonstrations": 7}
    both.load(both.state())
    assert MixedSource().on_policy
