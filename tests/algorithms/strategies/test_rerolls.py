"""Numbers and lengths by success, groups rolled again, early stops: DART, ActiveVLN and SimpleTIR, by hand and at their neutral knobs."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stages import AGENT, BRITTLE, CHAIN, Whimsical, chain, collected, runtime_on, same, shown

from agentrl_jax.algorithms.quality import void_turn
from agentrl_jax.algorithms.rewards import DistanceSuccess
from agentrl_jax.algorithms.schedules import RolloutCount
from agentrl_jax.algorithms.strategies.adaptive import Adaptive
from agentrl_jax.algorithms.strategies.best_first import BestFirst
from agentrl_jax.algorithms.strategies.branching import Branching
from agentrl_jax.algorithms.strategies.early import Early, OnTurn, StepBudget
from agentrl_jax.algorithms.strategies.league import League
from agentrl_jax.algorithms.strategies.pairs import Pairs
from agentrl_jax.algorithms.strategies.proof_cache import ProofCache
from agentrl_jax.algorithms.strategies.recallable import Recallable
from agentrl_jax.algorithms.strategies.reroll import Reroll, Spread, some_success
from agentrl_jax.algorithms.strategies.self_play import SelfPlay
from agentrl_jax.errors import UserError
from agentrl_jax.experiment import EnvironmentConfig, RolloutFeed, Rollouts
from agentrl_jax.keys import chance_of
from agentrl_jax.messages import assistant, user
from agentrl_jax.speaking import Limits
from agentrl_jax.strategies import Independent, Joining, Remembering, Stateful, found
from agentrl_jax.trajectories import Group, Trajectory, Turn
from agentrl_jax.workers import Task

CALCULATOR, KEYDOOR = "agentrl_jax.envs:agentrl/Calculator-v0", "agentrl_jax.envs:agentrl/KeyDoor-v0"


def eight(success: float) -> int:
    return 8


def episode(success: bool | None, turns: int = 1, reward: float = 0.0) -> Trajectory:
    turn = Turn((), assistant("a"), (user("o"),), reward / turns)
    return Trajectory((user("go"),), (turn,) * turns, "t", success=success)


def after(strategy: Adaptive, *groups: Group) -> Adaptive:
    strategy.learn(json.loads(json.dumps([strategy.tell(groups)])))
    return strategy


def group_of(*episodes: Trajectory, task: str | None = None) -> Group:
    return Group(task or chain().name, episodes)


@pytest.mark.parametrize(("share", "count"), [(0.0, 8), (0.5, 8), (0.59, 8), (0.6, 8), (0.75, 5), (0.9, 3), (1.0, 2)])
def test_darts_table_of_counts(share: float, count: int):
    assert RolloutCount()(share) == count
    episodes = [episode(i < round(100 * share)) for i in range(100)]
    strategy = after(Adaptive(Independent(8), memory=100), group_of(*episodes))
    assert len(collected(strategy, Whimsical()).trajectories) == count


def test_a_number_by_success_is_by_task_and_of_the_newest_episodes():
    strategy = after(Adaptive(Independent(8), memory=4), group_of(*[episode(False)] * 4), group_of(*[episode(True)] * 4))
    assert len(collected(strategy, Whimsical()).trajectories) == 2  # the failures are forgotten
    assert len(collected(strategy, Whimsical(), chain(1)).trajectories) == 8  # never seen
    after(strategy, group_of(*[episode(False)] * 2))
    assert len(collected(strategy, Whimsical()).trajectories) == 8


def test_episodes_are_capped_by_the_longest_success():
    strategy = after(Adaptive(Independent(8), slack=1.5, count=eight), group_of(episode(True, 2), episode(False, 6)))
    assert max(len(t.turns) for t in collected(strategy, Whimsical()).trajectories) == 3
    agent = dataclasses.replace(AGENT, limits=Limits(turns=2))
    assert max(len(t.turns) for t in collected(strategy, Whimsical(), agent=agent).trajectories) == 2
    only_failures = after(Adaptive(Independent(8), slack=1.5, count=eight), group_of(episode(False, 1)))
    assert same(collected(only_failures, Whimsical()), collected(Independent(8), Whimsical()))


def test_what_is_remembered_is_bounded_joins_the_checkpoint_and_is_the_same_for_all_processes():
    strategy = Adaptive(Independent(8), slack=1.0, tasks=2)
    assert isinstance(strategy, Remembering)
    for name in ("a", "b", "a", "c"):
        after(strategy, group_of(episode(True, 3), task=name))
    again = Adaptive(Independent(8), slack=1.0, tasks=2)
    again.load(json.loads(json.dumps(strategy.state())))
    assert list(again._played) == ["a", "c"] and again._played == strategy._played
    split, whole = Adaptive(), Adaptive()
    groups = [group_of(episode(True), task="x"), group_of(episode(False), task="y")]
    split.learn([split.tell(groups[:1]), split.tell(groups[1:])])
    assert after(whole, *groups).state() == split.state()


def test_what_stands_in_others_remembers_and_joins_by_itself():
    inner = Adaptive(Independent(4), count=lambda success: 4 if success < 1 else 1)
    around = Reroll(inner, attempts=1)
    assert found(Remembering, around) == found(Stateful, around) == [inner]
    after(inner, group_of(episode(True)))
    assert len(collected(around, Whimsical()).trajectories) == 1
    league = League()
    assert found(Joining, Reroll(SelfPlay(opponents=league))) == [league] and found(Stateful, Early(Independent(4))) == []
    cache = ProofCache()
    assert found(Stateful, Recallable(BestFirst(cache=cache))) == [cache]


def test_a_feed_resumes_with_what_its_strategy_had_learnt():
    def count(success: float) -> int:
        return 3 if success == 0 else 1

    def feed(runtime: Any) -> RolloutFeed:
        environment = EnvironmentConfig(CHAIN, {"length": 2, "letters": 2, "horizon": 4})
        experiment: Any = SimpleNamespace(seed=0, environment=environment)
        return RolloutFeed(Rollouts(2, Reroll(Adaptive(Independent(3), count=count)), worlds=3), runtime, experiment)

    with runtime_on(Whimsical()) as runtime:
        unbroken, first = feed(runtime), feed(runtime)
        steps = [unbroken.next(step) for step in range(6)]
        for step in range(3):
            first.next(step)
        second = feed(runtime)
        second.load(json.loads(json.dumps(first.state())))
        assert all(same(a, b) for step in range(3, 6) for a, b in zip(second.next(step), steps[step], strict=True))
    assert {len(group.trajectories) for step in steps for group in step} == {1, 3}


@dataclasses.dataclass
class Fixed:
    """Gives groups out in order."""

    groups: Sequence[Group]
    keys: list = dataclasses.field(default_factory=list)

    async def collect(self, task: Any, runtime: Any, key: Any) -> Group:
        self.keys.append(key)
        return self.groups[len(self.keys) - 1]


@pytest.mark.parametrize(
    ("successes", "attempts", "rolled", "spent"),
    [([1, 0], 2, 1, 0), ([0, 1], 2, 2, 6), ([0, 0, 1], 2, 2, 6), ([0, 0, 1], 3, 3, 12), ([0], 1, 1, 0)],
)
def test_a_group_without_success_is_rolled_again(successes: list, attempts: int, rolled: int, spent: int):
    groups = [dataclasses.replace(group_of(episode(False, 3), episode(bool(x), 3)), dropped=1) for x in successes]
    fixed = Fixed(groups)
    group = collected(Reroll(fixed, attempts=attempts), Whimsical())
    assert len(fixed.keys) == rolled == len(set(fixed.keys)) and fixed.keys[0] == (7, 3, 0)
    assert all(len(key) == 3 and key[:2] == (7, 3) for key in fixed.keys)
    assert group.trajectories == groups[rolled - 1].trajectories
    assert (group.spent, group.dropped, group.played) == (spent, rolled, spent + 6)


def test_a_spread_of_returns_is_enough():
    assert not Spread()(group_of(episode(None, reward=0.3), episode(None, reward=0.3))) and not Spread()(group_of(episode(True)))
    assert Spread()(group_of(episode(None, reward=0.3), episode(None, reward=0.4)))
    assert not Spread(0.1)(group_of(episode(None, reward=0.3), episode(None, reward=0.4)))
    assert not some_success(group_of()) and not some_success(group_of(episode(None)))
    fixed = Fixed([group_of(episode(None), episode(None)), group_of(episode(None), episode(None, reward=1.0))])
    assert collected(Reroll(fixed, Spread(), attempts=5), Whimsical()).spent == 2


def test_worlds_that_always_fail_are_rolled_again_and_counted(tmp_path: Path):
    task = Task(BRITTLE, 0, {"good": 0, "path": str(tmp_path / "log")})
    group = collected(Reroll(Independent(3), attempts=2), Whimsical(), task, retries=1)
    assert group.trajectories == () and group.dropped == 6


@pytest.mark.parametrize(("expert", "budget"), [(30, 60), (80, 120), (60, 120), (7, 14), (1, 2)])
def test_active_vlns_step_budget(expert: int, budget: int):
    assert StepBudget().turns(expert) == budget
    assert StepBudget(1.5, 200).turns(5) == 7


def test_an_episode_over_its_budget_earns_nothing_and_stays():
    task = Task(KEYDOOR, 3, {"shaped": True, "stop": True})
    engine = Whimsical(("up", "down", "left", "right"))
    needed = len(shown(task))
    assert needed >= 4
    for tolerance in (0.5, 1.0):
        group = collected(Early(Independent(6), [StepBudget(tolerance)]), engine, task)
        plain = collected(Independent(6), engine, task)
        budget = int(needed * tolerance)
        assert len(group.trajectories) == 6 and {len(t.turns) for t in group.trajectories} == {budget}
        for mine, whole in zip(group.trajectories, plain.trajectories):
            assert (mine.stop_reason, mine.success, mine.total_reward) == ("early", False, 0.0)
            assert [c.key for c in mine.calls] == [c.key for c in whole.calls[:budget]]
        assert {t.total_reward for t in DistanceSuccess()(group, 0).trajectories} == {0.0}
    assert any(t.total_reward != 0 for t in plain.trajectories)


def test_a_void_turn_ends_an_episode():
    engine = Whimsical(("hm", "calc 1+2", "calc 3+4"))
    group = collected(Early(Independent(16), [OnTurn()]), engine, Task(CALCULATOR, 0))
    plain = collected(Independent(16), engine, Task(CALCULATOR, 0))
    for mine, whole in zip(group.trajectories, plain.trajectories):
        voids = [void_turn(turn) for turn in whole.turns]
        length = [*voids, True].index(True) + 1
        assert len(mine.turns) == min(length, len(whole.turns))
        assert mine.stop_reason == ("early" if length <= len(whole.turns) - (whole.turns[-1].truncated) else whole.stop_reason)
    assert len({len(t.turns) for t in group.trajectories}) > 2


@pytest.mark.parametrize(
    "neutral",
    [
        Adaptive(Independent(8), count=eight), Adaptive(Independent(3)), Reroll(Independent(8), attempts=1),
        Reroll(Independent(8), enough=lambda group: True), Early(Independent(8), [StepBudget(1e9, 10**9)]),
        Early(Independent(8), [OnTurn(lambda turn: False)]),
        Early(Reroll(Adaptive(Branching(10, 4, 8), count=eight), attempts=1), [OnTurn(lambda turn: False)]),
    ],
)  # fmt: skip
def test_neutral_knobs_are_independent_episodes(neutral: Any):
    assert same(collected(neutral, Whimsical()), collected(Independent(8), Whimsical()))


def test_pieces_compose_and_follow_from_the_key():
    def strategy() -> Any:
        tree = Branching(10, 8, 2, lambda uniform, more, in_a_row: True)
        return Reroll(Early(tree, [StepBudget(0.75)]), Spread(), attempts=3)

    groups = [collected(strategy(), Whimsical(moment=late, places=9), chain(4, progress=True)) for late in (0.0, 0.003)]
    assert same(*groups) and len(groups[0].trajectories) == 8
    assert {len(t.turns) for t in groups[0].trajectories} == {3} and groups[0].spent > 0  # all were stopped, so nothing spread


def test_what_makes_no_sense_is_refused():
    for wrong in (Reroll(attempts=0), Early(), Adaptive(Pairs())):
        with pytest.raises(UserError):
            collected(wrong, Whimsical())
    with pytest.raises(UserError, match="memory"):
        Adaptive(memory=0)


def test_a_pair_shares_its_first_turns_and_the_cut_is_uniform():
    cuts = []
    for seed in range(5):
        engine = Whimsical()
        group = collected(Pairs(), engine, chain(seed, horizon=4, length=9))
        first, second = group.trajectories
        cut = second.branch_turn
        assert (first.sample, first.parent, second.sample, second.parent) == (0, None, 1, 0) and cut is not None
        assert cut == int(4 * chance_of(7, 3, 0, 0, 1, 0)) or len(first.turns) != 4
        assert all(a is b for a, b in zip(first.turns[:cut], second.turns[:cut], strict=True))
        assert second.calls[cut].prompt.tolist() == first.calls[cut].prompt.tolist()
        assert second.calls[cut].key[3:] == (1, 0, cut) and engine.held == set()
        cuts.append(cut)
    assert len(set(cuts)) == 1  # the key alone decides


def test_a_pair_cut_at_its_root_is_two_independent_episodes_and_faults_are_counted(tmp_path: Path):
    with runtime_on(Whimsical()) as runtime:
        groups = runtime.collect(Pairs(), [chain(i) for i in range(24)], (1, 1))
        plain = runtime.collect(Independent(2), [chain(i) for i in range(24)], (1, 1))
    cuts = [group.trajectories[1].branch_turn for group in groups]
    shares = [cuts.count(cut) / 24 for cut in range(4)]
    assert min(shares) > 0.05 and max(shares) < 0.5
    roots = [(g, p) for g, p, cut in zip(groups, plain, cuts) if cut == 0]
    for group, two in roots:
        bare = [t.replace(parent=None, branch_turn=None) for t in group.trajectories]
        assert same(Group("", tuple(bare)), two)
    one = collected(Pairs(), Whimsical(), Task(BRITTLE, 0, {"good": 1, "path": str(tmp_path / "a")}), retries=0)
    none = collected(Pairs(), Whimsical(), Task(BRITTLE, 0, {"good": 0, "path": str(tmp_path / "b")}), retries=0)
    assert (len(one.trajectories), one.dropped) == (1, 1) and (len(none.trajectories), none.dropped) == (0, 1)
