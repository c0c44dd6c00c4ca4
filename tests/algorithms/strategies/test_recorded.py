"""Where a pair parts and whose dialogue it goes on from: cuts, random horizons, roll-ins and replies from demonstrations."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages import AGENT, KEY, Whimsical, chain, collected, runtime_on, same, told

from agentrl_jax import records
from agentrl_jax.algorithms.pairing import pairs_of
from agentrl_jax.algorithms.strategies.pairs import Pairs, any_turn, last_turn
from agentrl_jax.algorithms.strategies.recorded import Recorded, RecordedPairs
from agentrl_jax.errors import UserError
from agentrl_jax.speaking import Agent
from agentrl_jax.strategies import Independent, Scripted
from agentrl_jax.trajectories import Group, Sampling, Trajectory
from agentrl_jax.workers import Task

ADVICE = "agentrl_jax.envs:agentrl/Advice-v0"
WARM = Agent("policy", AGENT.renderer, AGENT.context, Sampling(budget=24, temperature=0.7))
SAYINGS = ("ask food", "ask place", "go rice hill", "go soup lake", "go fish")


def advice(seed: int = 0, **options: Any) -> Task:
    return Task(ADVICE, seed, {"topics": 2, **options})


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    with runtime_on(Whimsical()) as runtime:
        groups = runtime.collect(Scripted("mixture"), [advice(i) for i in range(120)], KEY)
    return [group.trajectories[0] for group in groups]


@pytest.fixture(scope="module")
def path(shown: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shown") / "demonstrations"
    records.write(path, map(records.encode, shown))
    return path


def played(strategy: Any, tasks: list[Task], path: Path | None = None) -> list[Group]:
    engine = Whimsical(SAYINGS)
    if path is not None:
        getattr(strategy, "roll_in", strategy).read(path, WARM)
    with runtime_on(engine, WARM) as runtime:
        groups = runtime.collect(strategy, tasks, KEY)
    assert engine.held == set()
    return groups


def test_where_a_pair_parts():
    assert [any_turn(chance, 4) for chance in (0.0, 0.26, 0.5, 0.99)] == [0, 1, 2, 3]
    assert {last_turn(chance, 4) for chance in (0.0, 0.99)} == {3}
    for group in played(Pairs(cut=last_turn), [advice(i) for i in range(8)]):
        first, second = group.trajectories
        assert second.branch_turn == len(first.turns) - 1 == len(second.turns) - 1


def test_one_turn_is_two_independent_answers():
    tasks = [advice(i, horizon=1) for i in range(6)]
    pairs = played(Pairs(), tasks)
    for pair, two in zip(pairs, played(Independent(2), tasks), strict=True):
        assert same(Group("", tuple(t.replace(parent=None, branch_turn=None) for t in pair.trajectories)), two)
        (_, *_, facts), (_, *_, others) = (told(t) for t in pair.trajectories)
        assert facts[3:] == (None, None) and others[3:] == (0, 0)


def test_a_random_horizon_cuts_both_dialogues():
    """L ~ U{1, ..., 4}, h ~ U{0, ..., L - 1}: 16 (L, h) of which (1, 0) has 4/16, (4, 3) has 1/16."""
    seen = Counter()
    for group in played(Pairs(longest=4), [advice(i, horizon=6) for i in range(120)]):
        first, second = group.trajectories
        assert len(first.turns) == len(second.turns) and {first.stop_reason, second.stop_reason} == {"turns"}
        seen[len(first.turns), second.branch_turn] += 1
    assert set(seen) == {(length, h) for length in range(1, 5) for h in range(length)}
    for (length, _), count in seen.items():
        assert abs(count - 120 / 4 / length) < 5 * (120 / 4 / length) ** 0.5
    assert max(len(t.turns) for g in played(Pairs(longest=4), [advice(i) for i in range(9)]) for t in g.trajectories) == 3
    with pytest.raises(UserError, match="longest"):
        Pairs(longest=-1)


@pytest.mark.parametrize("cut", [any_turn, last_turn])
def test_a_roll_in_is_a_demonstration_and_the_rest_is_the_policys(cut: Any, path: Path, shown: list[Trajectory]):
    cuts = set()
    for group in played(Pairs(cut=cut, roll_in=Recorded()), [advice(10_000 + i) for i in range(24)], path):
        first, second = group.trajectories
        (before,) = (one for one in shown if one.task == first.task)
        h = first.branch_turn
        assert h == second.branch_turn and first.seed == second.seed == int(before.task.rpartition("#")[2]) and first.parent is None
        assert [t.action for t in first.turns[:h]] == [t.action for t in before.turns[:h]]
        assert {call.source for call in first.calls[:h]} <= {"demonstration"} and {call.source for call in first.calls[h:]} == {"sampled"}
        assert {call.key[3] for call in first.calls[h:]} == {0} and {call.key[3] for call in second.calls[h:]} == {1}
        assert len(first.turns) == 3 and (cut is any_turn or h == 2)
        cuts.add(h)
        pairs, left_out = pairs_of([group])
        assert len(pairs) + left_out["identical"] == 1 and all(pair.turn == h for pair in pairs)
    assert cuts == ({0, 1, 2} if cut is any_turn else {2})


def test_replies_of_the_data_alone(path: Path, shown: list[Trajectory]):
    groups = played(RecordedPairs(), [advice(i) for i in range(20)], path)
    pairs, left_out = pairs_of(groups)
    assert len(pairs) == 20 and left_out == {"broken": 0, "identical": 0}
    assert len({pair.dialogues[0].task for pair in pairs}) > 5
    for pair in pairs:
        first, second = pair.dialogues
        assert first.opening == second.opening and first.turns[-1].action != second.turns[-1].action
        assert [t.observation for t in first.turns[:-1]] == [t.observation for t in second.turns[:-1]]
        assert all((row.temperature[row.action_mask] == np.float32(0.7)).all() for row in pair.rows)
        for one in (first, second):
            (before,) = (t for t in shown if t.task == one.task)
            assert one.total_reward == pytest.approx(before.total_reward)
            assert WARM.renderer.parse(pair.rows[0].tokens[pair.rows[0].action_mask]).text == first.turns[-1].action.text


def test_demonstrations_that_do_not_fit_are_refused(tmp_path: Path, shown: list[Trajectory]):
    for name, some in {"alone": shown[:1], "nameless": [one.replace(task="elsewhere") for one in shown]}.items():
        records.write(tmp_path / name, map(records.encode, some))
    with pytest.raises(UserError, match="last reply"):
        RecordedPairs().read(tmp_path / "alone", WARM)
    roll_in = Recorded()
    roll_in.read(tmp_path / "nameless", WARM)
    with pytest.raises(UserError, match="which world"):
        collected(Pairs(roll_in=roll_in), Whimsical(), chain())
