"""Paired dialogues: branch turns, random horizons, roll-ins and replies from demonstrations."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.strategy_runs import (
    AGENT,
    KEY,
    KeyedTextEngine,
    chain_task,
    collect_group,
    episode_content,
    groups_equal,
    make_runtime,
)

from agentrl_jax.algorithms.pairwise.pairs import preference_pairs_of
from agentrl_jax.algorithms.strategies.offline_pairs import DemonstrationPairs, DemonstrationRollIn
from agentrl_jax.algorithms.strategies.paired_rollouts import (
    PairedRollouts,
    last_turn,
    uniform_turn,
)
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes, find_pieces
from agentrl_jax.storage import demonstration_file
from agentrl_jax.trajectories import Group, Sampling, Trajectory
from agentrl_jax.workers.pool import Task

ADVICE = "agentrl_jax.envs:agentrl/Advice-v0"
WARM = Agent("policy", AGENT.renderer, AGENT.context, Sampling(budget=24, temperature=0.7))
SAYINGS = ("ask food", "ask place", "go rice hill", "go soup lake", "go fish")


def advice(seed: int = 0, **options: Any) -> Task:
    return Task(ADVICE, seed, {"topics": 2, **options})


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> list[Trajectory]:
    with make_runtime(KeyedTextEngine()) as runtime:
        groups = runtime.collect(ScriptedEpisodes("mixture"), [advice(i) for i in range(120)], KEY)
    return [group.trajectories[0] for group in groups]


@pytest.fixture(scope="module")
def path(demonstrations: list[Trajectory], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shown") / "demonstrations"
    demonstration_file.write(path, map(demonstration_file.encode, demonstrations))
    return path


def collect_pairs(strategy: Any, tasks: list[Task], path: Path | None = None) -> list[Group]:
    engine = KeyedTextEngine(SAYINGS)
    if path is not None:
        for piece in find_pieces(strategy):
            if isinstance(piece, DemonstrationRollIn):
                piece.open_demonstrations(path, WARM)
            elif isinstance(piece, DemonstrationPairs):
                piece.load_demonstrations(path, WARM)
    with make_runtime(engine, WARM) as runtime:
        groups = runtime.collect(strategy, tasks, KEY)
    assert engine.held_ids == set()
    return groups


def test_the_turn_at_which_a_pair_branches():
    assert [uniform_turn(chance, 4) for chance in (0.0, 0.26, 0.5, 0.99)] == [0, 1, 2, 3]
    assert {last_turn(chance, 4) for chance in (0.0, 0.99)} == {3}
    for group in collect_pairs(
        PairedRollouts(branch_turn=last_turn), [advice(i) for i in range(8)]
    ):
        first, second = group.trajectories
        assert second.branch_turn == len(first.turns) - 1 == len(second.turns) - 1


def test_one_turn_is_two_independent_answers():
    tasks = [advice(i, horizon=1) for i in range(6)]
    pairs = collect_pairs(PairedRollouts(), tasks)
    for pair, two in zip(pairs, collect_pairs(IndependentEpisodes(2), tasks), strict=True):
        assert groups_equal(
            Group("", tuple(t.replace(parent=None, branch_turn=None) for t in pair.trajectories)),
            two,
        )
        (_, *_, first_fields), (_, *_, second_fields) = (
            episode_content(t) for t in pair.trajectories
        )
        assert first_fields[3:] == (None, None) and second_fields[3:] == (0, 0)


def test_a_random_horizon_cuts_both_dialogues():
    """L ~ U{1, ..., 4}, h ~ U{0, ..., L - 1}: 16 (L, h) of which (1, 0) has 4/16, (4, 3) has
    1/16.
    """
    counts = Counter()
    for group in collect_pairs(
        PairedRollouts(max_horizon=4), [advice(i, horizon=6) for i in range(120)]
    ):
        first, second = group.trajectories
        assert len(first.turns) == len(second.turns) and {
            first.stop_reason,
            second.stop_reason,
        } == {"turns"}
        counts[len(first.turns), second.branch_turn] += 1
    assert set(counts) == {(length, h) for length in range(1, 5) for h in range(length)}
    for (length, _), count in counts.items():
        assert abs(count - 120 / 4 / length) < 5 * (120 / 4 / length) ** 0.5
    assert (
        max(
            len(t.turns)
            for g in collect_pairs(PairedRollouts(max_horizon=4), [advice(i) for i in range(9)])
            for t in g.trajectories
        )
        == 3
    )
    with pytest.raises(UserError, match="max_horizon"):
        PairedRollouts(max_horizon=-1)


@pytest.mark.parametrize("cut", [uniform_turn, last_turn])
def test_a_roll_in_is_a_demonstration_and_the_policy_continues_it(
    cut: Any, path: Path, demonstrations: list[Trajectory]
):
    cuts = set()
    for group in collect_pairs(
        PairedRollouts(branch_turn=cut, roll_in=DemonstrationRollIn()),
        [advice(10_000 + i) for i in range(24)],
        path,
    ):
        first, second = group.trajectories
        (before,) = (t for t in demonstrations if t.task == first.task)
        h = first.branch_turn
        assert (
            h == second.branch_turn
            and first.seed == second.seed == int(before.task.rpartition("#")[2])
            and first.parent is None
        )
        assert [t.action for t in first.turns[:h]] == [t.action for t in before.turns[:h]]
        assert {call.source for call in first.calls[:h]} <= {"demonstration"} and {
            call.source for call in first.calls[h:]
        } == {"sampled"}
        assert {call.key[3] for call in first.calls[h:]} == {0} and {
            call.key[3] for call in second.calls[h:]
        } == {1}
        assert len(first.turns) == 3 and (cut is uniform_turn or h == 2)
        cuts.add(h)
        pairs, left_out = preference_pairs_of([group])
        assert len(pairs) + left_out["identical"] == 1 and all(pair.turn == h for pair in pairs)
    assert cuts == ({0, 1, 2} if cut is uniform_turn else {2})


def test_pairs_of_demonstrated_replies(path: Path, demonstrations: list[Trajectory]):
    groups = collect_pairs(DemonstrationPairs(), [advice(i) for i in range(20)], path)
    pairs, left_out = preference_pairs_of(groups)
    assert len(pairs) == 20 and left_out == {"broken": 0, "identical": 0}
    assert len({pair.dialogues[0].task for pair in pairs}) > 5
    for pair in pairs:
        first, second = pair.dialogues
        assert first.opening == second.opening and first.turns[-1].action != second.turns[-1].action
        assert [t.observation for t in first.turns[:-1]] == [
            t.observation for t in second.turns[:-1]
        ]
        assert all(
            (row.temperature[row.action_mask] == np.float32(0.7)).all() for row in pair.sequences
        )
        for trajectory in (first, second):
            (before,) = (t for t in demonstrations if t.task == trajectory.task)
            assert trajectory.total_reward == pytest.approx(before.total_reward)
            assert (
                WARM.renderer.parse(pair.sequences[0].tokens[pair.sequences[0].action_mask]).text
                == first.turns[-1].action.text
            )


def test_unsuitable_demonstrations_are_refused(tmp_path: Path, demonstrations: list[Trajectory]):
    for name, some in {
        "alone": demonstrations[:1],
        "nameless": [t.replace(task="elsewhere") for t in demonstrations],
    }.items():
        demonstration_file.write(tmp_path / name, map(demonstration_file.encode, some))
    with pytest.raises(UserError, match="last reply"):
        DemonstrationPairs().load_demonstrations(tmp_path / "alone", WARM)
    roll_in = DemonstrationRollIn()
    roll_in.open_demonstrations(tmp_path / "nameless", WARM)
    with pytest.raises(UserError, match="does not name the seed"):
        collect_group(PairedRollouts(roll_in=roll_in), KeyedTextEngine(), chain_task())
