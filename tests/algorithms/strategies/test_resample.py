"""Adaptive rollout counts and turn caps, resampled groups, early stops: DART, ActiveVLN and
SimpleTIR by hand and at their neutral settings.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.small_runs import small_experiment
from support.strategy_runs import (
    AGENT,
    BRITTLE_ID,
    CHAIN_ID,
    KeyedTextEngine,
    chain_task,
    collect_group,
    expert_actions,
    groups_equal,
    make_runtime,
)

from agentrl_jax.algorithms.advantages.trajectory_checks import is_void_turn
from agentrl_jax.algorithms.experience.rewards import DistanceReward
from agentrl_jax.algorithms.experience.schedules import RolloutCount
from agentrl_jax.algorithms.strategies.adaptive_budget import AdaptiveBudget
from agentrl_jax.algorithms.strategies.best_first import BestFirstSearch
from agentrl_jax.algorithms.strategies.branching import BranchingRollouts
from agentrl_jax.algorithms.strategies.early_stop import EarlyStopping, StepBudget, StopOnTurn
from agentrl_jax.algorithms.strategies.league import League
from agentrl_jax.algorithms.strategies.paired_rollouts import PairedRollouts
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.algorithms.strategies.resample import ResampleGroup, ReturnStdAbove, any_success
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.algorithms.strategies.task_reference import WithTaskReference
from agentrl_jax.errors import UserError
from agentrl_jax.keys import uniform_of
from agentrl_jax.messages import assistant, user
from agentrl_jax.rollout.agent import Limits
from agentrl_jax.rollout.strategy import IndependentEpisodes, find_pieces
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.training.sources import RolloutIterator, Rollouts
from agentrl_jax.training.task_set import TaskSet
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers.pool import Task

CALCULATOR, KEYDOOR = (
    "agentrl_jax.envs:agentrl/Calculator-v0",
    "agentrl_jax.envs:agentrl/KeyDoor-v0",
)


def eight(success: float) -> int:
    return 8


def episode(success: bool | None, turns: int = 1, reward: float = 0.0) -> Trajectory:
    turn = Turn((), assistant("a"), (user("o"),), reward / turns)
    return Trajectory((user("go"),), (turn,) * turns, "t", success=success)


def after(strategy: AdaptiveBudget, *groups: Group) -> AdaptiveBudget:
    strategy.update(json.loads(json.dumps([strategy.summarize(groups)])))
    return strategy


def group_of(*episodes: Trajectory, task: str | None = None) -> Group:
    return Group(task or chain_task().name, episodes)


@pytest.mark.parametrize(
    ("share", "count"), [(0.0, 8), (0.5, 8), (0.59, 8), (0.6, 8), (0.75, 5), (0.9, 3), (1.0, 2)]
)
def test_darts_table_of_counts(share: float, count: int):
    assert RolloutCount()(share) == count
    episodes = [episode(i < round(100 * share)) for i in range(100)]
    strategy = after(
        AdaptiveBudget(IndependentEpisodes(8), history_length=100), group_of(*episodes)
    )
    assert len(collect_group(strategy, KeyedTextEngine()).trajectories) == count


def test_rollout_counts_follow_the_newest_episodes_of_each_task():
    strategy = after(
        AdaptiveBudget(IndependentEpisodes(8), history_length=4),
        group_of(*[episode(False)] * 4),
        group_of(*[episode(True)] * 4),
    )
    assert (
        len(collect_group(strategy, KeyedTextEngine()).trajectories) == 2
    )  # the failures are no longer in the history
    assert (
        len(collect_group(strategy, KeyedTextEngine(), chain_task(1)).trajectories) == 8
    )  # a new task
    after(strategy, group_of(*[episode(False)] * 2))
    assert len(collect_group(strategy, KeyedTextEngine()).trajectories) == 8


def test_episodes_are_capped_by_the_longest_success():
    strategy = after(
        AdaptiveBudget(IndependentEpisodes(8), turn_slack=1.5, rollout_count=eight),
        group_of(episode(True, 2), episode(False, 6)),
    )
    assert max(len(t.turns) for t in collect_group(strategy, KeyedTextEngine()).trajectories) == 3
    agent = dataclasses.replace(AGENT, limits=Limits(turns=2))
    assert (
        max(
            len(t.turns)
            for t in collect_group(strategy, KeyedTextEngine(), agent=agent).trajectories
        )
        == 2
    )
    only_failures = after(
        AdaptiveBudget(IndependentEpisodes(8), turn_slack=1.5, rollout_count=eight),
        group_of(episode(False, 1)),
    )
    assert groups_equal(
        collect_group(only_failures, KeyedTextEngine()),
        collect_group(IndependentEpisodes(8), KeyedTextEngine()),
    )


def test_the_history_is_bounded_checkpointed_and_equal_in_all_processes():
    strategy = AdaptiveBudget(IndependentEpisodes(8), turn_slack=1.0, max_tasks=2)
    for name in ("a", "b", "a", "c"):
        after(strategy, group_of(episode(True, 3), task=name))
    again = AdaptiveBudget(IndependentEpisodes(8), turn_slack=1.0, max_tasks=2)
    again.load(json.loads(json.dumps(strategy.state())))
    assert list(again._history) == ["a", "c"] and again._history == strategy._history
    split, single = AdaptiveBudget(), AdaptiveBudget()
    groups = [group_of(episode(True), task="x"), group_of(episode(False), task="y")]
    split.update([split.summarize(groups[:1]), split.summarize(groups[1:])])
    assert after(single, *groups).state() == split.state()


def test_pieces_are_found_inside_other_strategies():
    inner = AdaptiveBudget(
        IndependentEpisodes(4), rollout_count=lambda success: 4 if success < 1 else 1
    )
    wrapper = ResampleGroup(inner, max_attempts=1)
    assert find_pieces(wrapper) == [inner]
    after(inner, group_of(episode(True)))
    assert len(collect_group(wrapper, KeyedTextEngine()).trajectories) == 1
    league = League()
    assert find_pieces(ResampleGroup(SelfPlay(opponents=league))) == [league]
    assert find_pieces(EarlyStopping(IndependentEpisodes(4))) == []
    cache = ProofCache()
    assert find_pieces(WithTaskReference(BestFirstSearch(proof_cache=cache))) == [cache]


def test_an_iterator_resumes_with_its_strategys_state():
    def count(success: float) -> int:
        return 3 if success == 0 else 1

    def feed(runtime: Any) -> RolloutIterator:
        environment = EnvironmentConfig(CHAIN_ID, {"length": 2, "letters": 2, "horizon": 4})
        strategy = ResampleGroup(AdaptiveBudget(IndependentEpisodes(3), rollout_count=count))
        rollouts = Rollouts(2, strategy, TaskSet(3))
        experiment = dataclasses.replace(
            small_experiment(rollouts), seed=0, environment=environment
        )
        return RolloutIterator(rollouts, runtime, experiment)

    with make_runtime(KeyedTextEngine()) as runtime:
        unbroken, first = feed(runtime), feed(runtime)
        steps = [unbroken.next(step) for step in range(6)]
        for step in range(3):
            first.next(step)
        second = feed(runtime)
        second.load(json.loads(json.dumps(first.state())))
        assert all(
            groups_equal(a, b)
            for step in range(3, 6)
            for a, b in zip(second.next(step), steps[step], strict=True)
        )
    assert {len(group.trajectories) for step in steps for group in step} == {1, 3}


@dataclasses.dataclass
class Fixed:
    """Returns the given groups in order."""

    groups: Sequence[Group]
    keys: list = dataclasses.field(default_factory=list)

    async def collect(self, task: Any, runtime: Any, key: Any) -> Group:
        self.keys.append(key)
        return self.groups[len(self.keys) - 1]


@pytest.mark.parametrize(
    ("successes", "attempts", "rolled", "spent"),
    [
        ([1, 0], 2, 1, 0),
        ([0, 1], 2, 2, 6),
        ([0, 0, 1], 2, 2, 6),
        ([0, 0, 1], 3, 3, 12),
        ([0], 1, 1, 0),
    ],
)
def test_a_group_without_success_is_resampled(
    successes: list, attempts: int, rolled: int, spent: int
):
    groups = [
        dataclasses.replace(group_of(episode(False, 3), episode(bool(x), 3)), num_dropped=1)
        for x in successes
    ]
    fixed = Fixed(groups)
    group = collect_group(ResampleGroup(fixed, max_attempts=attempts), KeyedTextEngine())
    assert len(fixed.keys) == rolled == len(set(fixed.keys)) and fixed.keys[0] == (7, 3, 0)
    assert all(len(key) == 3 and key[:2] == (7, 3) for key in fixed.keys)
    assert group.trajectories == groups[rolled - 1].trajectories
    assert (group.discarded_turns, group.num_dropped, group.num_turns_played) == (
        spent,
        rolled,
        spent + 6,
    )


def test_different_returns_end_resampling():
    assert not ReturnStdAbove()(
        group_of(episode(None, reward=0.3), episode(None, reward=0.3))
    ) and not ReturnStdAbove()(group_of(episode(True)))
    assert ReturnStdAbove()(group_of(episode(None, reward=0.3), episode(None, reward=0.4)))
    assert not ReturnStdAbove(0.1)(group_of(episode(None, reward=0.3), episode(None, reward=0.4)))
    cut = episode(None).replace(stop_reason="turns")
    assert not any_success(group_of()) and not any_success(group_of(cut))
    assert any_success(group_of(cut, episode(True)))
    with pytest.raises(UserError, match="does not say whether it was solved"):
        any_success(group_of(episode(None)))
    fixed = Fixed(
        [group_of(episode(None), episode(None)), group_of(episode(None), episode(None, reward=1.0))]
    )
    assert (
        collect_group(
            ResampleGroup(fixed, ReturnStdAbove(), max_attempts=5), KeyedTextEngine()
        ).discarded_turns
        == 2
    )


def test_groups_of_failing_environments_are_resampled_and_counted(tmp_path: Path):
    task = Task(BRITTLE_ID, 0, {"healthy_resets": 0, "path": str(tmp_path / "log")})
    group = collect_group(
        ResampleGroup(IndependentEpisodes(3), max_attempts=2), KeyedTextEngine(), task, retries=1
    )
    assert group.trajectories == () and group.num_dropped == 6


@pytest.mark.parametrize(("expert", "budget"), [(30, 60), (80, 120), (60, 120), (7, 14), (1, 2)])
def test_active_vlns_step_budget(expert: int, budget: int):
    assert StepBudget().turn_budget(expert) == budget
    assert StepBudget(1.5, 200).turn_budget(5) == 7


def test_an_episode_over_its_budget_has_return_0_and_stays():
    task = Task(KEYDOOR, 3, {"shaped": True, "stop": True})
    engine = KeyedTextEngine(("up", "down", "left", "right"))
    needed = len(expert_actions(task))
    assert needed >= 4
    for tolerance in (0.5, 1.0):
        group = collect_group(
            EarlyStopping(IndependentEpisodes(6), [StepBudget(tolerance)]), engine, task
        )
        plain = collect_group(IndependentEpisodes(6), engine, task)
        budget = int(needed * tolerance)
        assert len(group.trajectories) == 6 and {len(t.turns) for t in group.trajectories} == {
            budget
        }
        for stopped, full in zip(group.trajectories, plain.trajectories):
            assert (stopped.stop_reason, stopped.success, stopped.total_reward) == (
                "early",
                False,
                0.0,
            )
            assert [c.key for c in stopped.calls] == [c.key for c in full.calls[:budget]]
        assert {t.total_reward for t in DistanceReward()(group, 0).trajectories} == {0.0}
    assert any(t.total_reward != 0 for t in plain.trajectories)


def test_an_invalid_turn_ends_an_episode():
    engine = KeyedTextEngine(("hm", "calc 1+2", "calc 3+4"))
    group = collect_group(
        EarlyStopping(IndependentEpisodes(16), [StopOnTurn()]), engine, Task(CALCULATOR, 0)
    )
    plain = collect_group(IndependentEpisodes(16), engine, Task(CALCULATOR, 0))
    for stopped, full in zip(group.trajectories, plain.trajectories):
        voids = [is_void_turn(turn) for turn in full.turns]
        length = [*voids, True].index(True) + 1
        assert len(stopped.turns) == min(length, len(full.turns))
        assert stopped.stop_reason == (
            "early" if length <= len(full.turns) - (full.turns[-1].truncated) else full.stop_reason
        )
    assert len({len(t.turns) for t in group.trajectories}) > 2


@pytest.mark.parametrize(
    "neutral",
    [
        AdaptiveBudget(IndependentEpisodes(8), rollout_count=eight),
        AdaptiveBudget(IndependentEpisodes(3)),
        ResampleGroup(IndependentEpisodes(8), max_attempts=1),
        ResampleGroup(IndependentEpisodes(8), is_accepted=lambda group: True),
        EarlyStopping(IndependentEpisodes(8), [StepBudget(1e9, 10**9)]),
        EarlyStopping(IndependentEpisodes(8), [StopOnTurn(lambda turn: False)]),
        EarlyStopping(
            ResampleGroup(
                AdaptiveBudget(BranchingRollouts(10, 4, 8), rollout_count=eight), max_attempts=1
            ),
            [StopOnTurn(lambda turn: False)],
        ),
    ],
)
def test_neutral_settings_are_independent_episodes(neutral: Any):
    assert groups_equal(
        collect_group(neutral, KeyedTextEngine()),
        collect_group(IndependentEpisodes(8), KeyedTextEngine()),
    )


def test_strategies_compose_and_are_determined_by_the_key():
    def strategy() -> Any:
        tree = BranchingRollouts(10, 8, 2, lambda uniform, more, in_a_row: True)
        return ResampleGroup(
            EarlyStopping(tree, [StepBudget(0.75)]), ReturnStdAbove(), max_attempts=3
        )

    groups = [
        collect_group(
            strategy(), KeyedTextEngine(max_delay=late, num_slots=9), chain_task(4, progress=True)
        )
        for late in (0.0, 0.003)
    ]
    assert groups_equal(*groups) and len(groups[0].trajectories) == 8
    assert {len(t.turns) for t in groups[0].trajectories} == {3} and groups[
        0
    ].discarded_turns > 0  # all were stopped early, so their returns are equal


def test_invalid_settings_are_refused():
    for wrong in (ResampleGroup(max_attempts=0), EarlyStopping(), AdaptiveBudget(PairedRollouts())):
        with pytest.raises(UserError):
            collect_group(wrong, KeyedTextEngine())
    with pytest.raises(UserError, match="history_length"):
        AdaptiveBudget(history_length=0)


def test_a_pair_shares_its_first_turns_and_branches_at_a_uniform_turn():
    cuts = []
    for seed in range(5):
        engine = KeyedTextEngine()
        group = collect_group(PairedRollouts(), engine, chain_task(seed, horizon=4, length=9))
        first, second = group.trajectories
        cut = second.branch_turn
        assert (first.sample, first.parent, second.sample, second.parent) == (
            0,
            None,
            1,
            0,
        ) and cut is not None
        assert cut == int(4 * uniform_of(7, 3, 0, 0, 1, 0)) or len(first.turns) != 4
        assert all(a is b for a, b in zip(first.turns[:cut], second.turns[:cut], strict=True))
        assert second.calls[cut].prompt.tolist() == first.calls[cut].prompt.tolist()
        assert second.calls[cut].key[3:] == (1, 0, cut) and engine.held_ids == set()
        cuts.append(cut)
    assert len(set(cuts)) == 1  # determined by the key alone


@pytest.mark.slow
def test_a_pair_branched_at_its_root_is_two_independent_episodes(tmp_path: Path):
    with make_runtime(KeyedTextEngine()) as runtime:
        groups = runtime.collect(PairedRollouts(), [chain_task(i) for i in range(24)], (1, 1))
        plain = runtime.collect(IndependentEpisodes(2), [chain_task(i) for i in range(24)], (1, 1))
    cuts = [group.trajectories[1].branch_turn for group in groups]
    shares = [cuts.count(cut) / 24 for cut in range(4)]
    assert min(shares) > 0.05 and max(shares) < 0.5
    roots = [(g, p) for g, p, cut in zip(groups, plain, cuts) if cut == 0]
    for group, two in roots:
        bare = [t.replace(parent=None, branch_turn=None) for t in group.trajectories]
        assert groups_equal(Group("", tuple(bare)), two)
    second_dropped = collect_group(
        PairedRollouts(),
        KeyedTextEngine(),
        Task(BRITTLE_ID, 0, {"healthy_resets": 1, "path": str(tmp_path / "a")}),
        retries=0,
    )
    none = collect_group(
        PairedRollouts(),
        KeyedTextEngine(),
        Task(BRITTLE_ID, 0, {"healthy_resets": 0, "path": str(tmp_path / "b")}),
        retries=0,
    )
    assert (len(second_dropped.trajectories), second_dropped.num_dropped) == (1, 1) and (
        len(none.trajectories),
        none.num_dropped,
    ) == (0, 1)
