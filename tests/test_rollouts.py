"""Which worlds a step plays: new ones, a fixed number, drawn by success; turns capped by a schedule; groups played for anew."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hand_made import make_call, make_turn

from agentrl_jax.algorithms.filters import AccuracyBand
from agentrl_jax.algorithms.schedules import RaiseOnPlateau, Stepped, SuccessDriven, half_solved_first
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import EnvironmentConfig, Mixed, MixedFeed, RolloutFeed, Rollouts
from agentrl_jax.hosts import Hosts
from agentrl_jax.messages import user
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Limits
from agentrl_jax.trajectories import Group, Trajectory


@dataclasses.dataclass(frozen=True)
class Named:
    """What a feed changes of an agent."""

    limits: Limits = dataclasses.field(default_factory=Limits)


class FakeRuntime(Runtime):
    """Plays nothing: episode j of a world is solved where the world's seed says so."""

    def __init__(self, solved: Any = lambda task, j: True, turns: int = 1) -> None:
        self.hosts, self.agents = Hosts(), {"policy": Named()}
        self.played: list[tuple[tuple[int, ...], list[int]]] = []
        self.caps: list[int] = []
        self._solved, self._turns = solved, turns

    def collect(self, strategy: Any, tasks: list[Any], key: tuple[int, ...]) -> list[Group]:
        self.played.append((key, [task.seed for task in tasks]))
        self.caps.append(self.agents["policy"].limits.turns)
        turn = make_turn([make_call([1], [2])])
        return [
            Group(task.name, tuple(Trajectory((user("?"),), (turn,) * self._turns, success=self._solved(task, j)) for j in range(2)))
            for task in tasks
        ]


def feed(rollouts: Rollouts, runtime: FakeRuntime, seed: int = 0) -> RolloutFeed:
    experiment: Any = SimpleNamespace(seed=seed, environment=EnvironmentConfig())
    fake: Any = runtime
    return RolloutFeed(rollouts, fake, experiment)


def test_without_a_number_of_worlds_none_comes_twice():
    runtime = FakeRuntime()
    it = feed(Rollouts(4), runtime)
    for step in range(5):
        assert len(it.next(step)) == 4
    seeds = [seed for _, seeds in runtime.played for seed in seeds]
    assert len(set(seeds)) == 20 and it.state() is None


def test_a_fixed_number_of_worlds_comes_again_and_every_step_is_reproducible():
    first, second = FakeRuntime(), FakeRuntime()
    for runtime in (first, second):
        it = feed(Rollouts(4, worlds=3), runtime)
        for step in range(6):
            it.next(step)
    assert first.played == second.played
    assert len({seed for _, seeds in first.played for seed in seeds}) == 3
    assert len({tuple(seeds) for _, seeds in first.played}) > 1


def test_worlds_are_drawn_by_their_success():
    def solved(task: Any, j: int) -> bool:
        return task.seed % 2 == 0

    runtime = FakeRuntime(solved)
    it = feed(Rollouts(16, worlds=8, order=SuccessDriven(0.1, rate=0.5)), runtime)
    for step in range(30):
        it.next(step)
    late = [seed for _, seeds in runtime.played[10:] for seed in seeds]
    assert np.mean([seed % 2 == 1 for seed in late]) > 0.9  # what fails is drawn
    state, again = it.state(), feed(Rollouts(16, worlds=8, order=SuccessDriven(0.1, rate=0.5)), FakeRuntime(solved))
    again.load(state)
    it.next(30)
    again.next(30)
    other: Any = again._runtime
    assert other.played[-1] == runtime.played[-1]


def test_half_solved_worlds_are_preferred_by_the_other_reading():
    order = SuccessDriven(0.05, half_solved_first, rate=1.0)
    order.learn([0, 1, 2], [0.0, 0.5, 1.0])
    assert set(order.choose(3, 50, np.random.default_rng(0))) == {1}


def test_turns_are_capped_by_a_schedule_and_only_while_collecting():
    runtime = FakeRuntime()
    it = feed(Rollouts(1, turns=Stepped((8, 12, 15), 2)), runtime)
    for step in (0, 1, 2, 5):
        it.next(step)
    assert runtime.caps == [8, 8, 12, 15] and runtime.agents["policy"].limits.turns == 0


def test_a_cap_is_raised_once_episodes_stop_growing():
    runtime = FakeRuntime(turns=3)
    it = feed(Rollouts(1, turns=RaiseOnPlateau((5, 10), patience=2)), runtime)
    for step in range(5):
        it.next(step)
    assert runtime.caps == [5, 5, 5, 10, 10]
    again = feed(Rollouts(1, turns=RaiseOnPlateau((5, 10), patience=2)), runtime)
    again.load(it.state())
    again.next(5)
    assert runtime.caps[-1] == 10


def test_what_a_filter_drops_is_played_for_anew_until_there_are_enough():
    def solved(task: Any, j: int) -> bool:
        return j == 0 if task.seed % 2 else True  # half of the worlds tell nothing

    runtime = FakeRuntime(solved)
    band = AccuracyBand(0.0, 1.0, include_low=False, include_high=False)
    groups = feed(Rollouts(4, keep=band, rounds=10), runtime).next(0)
    assert len(groups) == 4 and all({t.success for t in group.trajectories} == {True, False} for group in groups)
    assert 1 < len(runtime.played) <= 10 and len({key for key, _ in runtime.played}) == len(runtime.played)
    few = feed(Rollouts(4, keep=AccuracyBand(2.0, 3.0), rounds=3), FakeRuntime(solved))
    assert few.next(0) == []


def test_a_source_that_makes_no_sense_is_refused():
    run: Any = SimpleNamespace(runtime=FakeRuntime(), experiment=SimpleNamespace(seed=0, environment=EnvironmentConfig()))
    for wrong in (Rollouts(0), Rollouts(order=SuccessDriven(1.0)), Rollouts(rounds=2)):
        with pytest.raises(UserError, match="rollouts need"):
            wrong.open(run)


def test_mixed_experience_has_both_and_both_states():
    runtime = FakeRuntime()
    shown = SimpleNamespace(next=lambda step: [Group("shown", ())], state=lambda: 7, load=lambda state: None)
    other: Any = shown
    both = MixedFeed(feed(Rollouts(2), runtime), other)
    assert [group.task for group in both.next(0)][2:] == ["shown"] and both.state() == {"rollouts": None, "demonstrations": 7}
    both.load(both.state())
    assert Mixed().on_policy
