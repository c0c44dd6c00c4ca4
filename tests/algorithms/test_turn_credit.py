"""Credit of turns against loops over trajectories and tables of the papers."""

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hand_made import batch_shapes, evidence_of, grown_groups, make_call, make_trajectory, make_turn, told
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.advantages import SumOf, group_centred, group_normalized
from agentrl_jax.algorithms.keying import anchor_of_turn, batch_of_turn, group_of_turn, player_of_turn, step_of_turn
from agentrl_jax.algorithms.turn_credit import (
    IGPO,
    MARS,
    ColumnCentred,
    LargestIsOne,
    RewardToGo,
    TurnKeyed,
    after_mismatch,
    before_mismatch,
    episode_return,
    turn_reward,
)
from agentrl_jax.errors import UserError
from agentrl_jax.rows import Evidence, collate
from agentrl_jax.trajectories import Group, Trajectory

MANY = settings(max_examples=60, deadline=None)
gammas = st.sampled_from([0.0, 0.5, 0.95, 1.0])


def rewarded(*rewards: float, **fields: object) -> Trajectory:
    """One token a turn."""
    return make_trajectory(*(make_turn([make_call([1], [2])], reward) for reward in rewards)).replace(**fields)


def credits_of(evidence: Evidence, advantage: np.ndarray) -> list[list[float]]:
    """The one value of each turn, by trajectory."""
    out: list[list[float]] = [[] for _ in evidence.trajectories]
    for r, j in enumerate(evidence.turn_trajectory):
        (value,) = set(advantage[evidence.token_turn == r].tolist())
        out[j].append(value)
    return out


def to_go(rewards: list[float], gamma: float) -> list[float]:
    return [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]


def centred(values: list[float], keys: list, std: bool, keep: bool) -> list[float]:
    out = []
    for value, key in zip(values, keys):
        same = [v for v, k in zip(values, keys) if k == key]
        alone = len(same) == 1
        x = value - (0.0 if alone and keep else statistics.fmean(same))
        out.append(x / ((1.0 if alone else statistics.stdev(same)) + 1e-6) if std else x)
    return out


@pytest.mark.parametrize("key", [group_of_turn, batch_of_turn, step_of_turn, anchor_of_turn])
@given(shapes=batch_shapes, gamma=gammas, std=st.booleans(), keep=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_keyed_turns_are_what_a_loop_gives(key: Callable, shapes: list, gamma: float, std: bool, keep: bool, seed: int):
    rng = np.random.default_rng(seed)
    groups = told(grown_groups(shapes), anchor=lambda turn, place: f"room {rng.integers(3)}", step=lambda turn, place: place)
    evidence = evidence_of(groups)
    returns = [x for t in evidence.trajectories for x in to_go([turn.reward for turn in t.turns], gamma)]
    group = [int(evidence.trajectory_group[j]) for j, t in enumerate(evidence.trajectories) for _ in t.turns]
    places = [i for t in evidence.trajectories for i in range(len(t.turns))]
    anchors = [turn.info["anchor"] for turn in evidence.turns]
    keys = {
        group_of_turn: group, batch_of_turn: [0] * len(group), step_of_turn: list(zip(group, places)),
        anchor_of_turn: list(zip(group, anchors)),
    }[key]  # fmt: skip
    expected = np.asarray(centred(returns, keys, std, keep))[evidence.token_turn] if returns else []
    assert TurnKeyed(RewardToGo(gamma), key, std=std, keep_alone=keep)(evidence) == pytest.approx(expected, abs=1e-7)
    bare = TurnKeyed(RewardToGo(gamma), None)(evidence)
    assert bare == pytest.approx(np.asarray(returns)[evidence.token_turn] if returns else [], abs=1e-9)


def test_anchors_are_what_was_shown_last_unless_the_environment_says():
    evidence = evidence_of(grown_groups([[[(1, 1, False, 0.0), (1, 1, False, 0.0)], [(1, 1, False, 0.0)]], [[(1, 1, False, 0.0)]]]))
    # opening, then the observation; the same opening again; another group
    assert anchor_of_turn(evidence).tolist() == [0, 1, 0, 2]


def test_gigpo_without_a_common_state_has_no_step_advantage():
    groups = told(grown_groups([[[(1, 2, False, 1.0)], [(1, 1, False, 0.0)]]]), anchor=lambda turn, place: id(turn))
    evidence = evidence_of(groups)
    step = TurnKeyed(RewardToGo(0.95), anchor_of_turn)
    assert not step(evidence).any()
    assert SumOf(group_centred, step)(evidence).tolist() == group_centred(evidence).tolist()


def test_gigpo_by_hand():
    def member(*turns: tuple[str, float]) -> Trajectory:
        made = [make_turn([make_call([1], [2])], reward) for _, reward in turns]
        return make_trajectory(*(dataclasses.replace(t, info={"anchor": a}) for t, (a, _) in zip(made, turns)))

    evidence = evidence_of([Group("a", (member(("s", 0.0), ("x", 1.0)), member(("s", 0.0), ("y", 0.0), ("s", 0.0))))])
    # returns from s: .5, 0, 0 with gamma .5; x and y are alone
    assert TurnKeyed(RewardToGo(0.5), anchor_of_turn)(evidence) == pytest.approx([1 / 3, 0, -1 / 6, 0, -1 / 6], abs=1e-12)
    total = SumOf(group_centred, TurnKeyed(RewardToGo(0.5), anchor_of_turn), 1.0, 3.0)(evidence)
    assert total == pytest.approx([1.5, 0.5, -1.0, -0.5, -1.0], abs=1e-12)
    # over step rows the longer trajectory weighs more: mean of 1, 1, 0, 0, 0
    assert TurnKeyed(episode_return)(evidence) == pytest.approx([0.6, 0.6, -0.4, -0.4, -0.4], abs=1e-12)


def test_returns_stop_at_a_mismatch_as_paper_and_code_have_it():
    groups = told([Group("a", (rewarded(1.0, 1.0, 0.1, 1.0),))], match=lambda turn, place: "type" if place == 2 else "exact")
    evidence = evidence_of(groups)
    assert RewardToGo(0.5, before_mismatch)(evidence) == pytest.approx([1.5, 1, 0.1, 1], abs=1e-12)
    assert RewardToGo(0.5, after_mismatch)(evidence) == pytest.approx([1.525, 1.05, 0.1, 1], abs=1e-12)
    with pytest.raises(UserError, match="no 'match'"):
        RewardToGo(0.5, after_mismatch)(evidence_of(grown_groups([[[(1, 1, False, 0.0)]]])))
    with pytest.raises(UserError, match="need the evidence"):
        RewardToGo(0.5, after_mismatch)(collate([]).indices)


@given(shapes=batch_shapes, gamma=gammas, seed=st.integers(0, 99), stop=st.sampled_from([before_mismatch, after_mismatch]))
@MANY
def test_stopped_returns_are_what_a_loop_gives(shapes: list, gamma: float, seed: int, stop: Callable):
    rng = np.random.default_rng(seed)
    evidence = evidence_of(told(grown_groups(shapes), match=lambda turn, place: str(rng.choice(["exact", "type", "none"]))))
    expected = []
    for trajectory in evidence.trajectories:
        rewards = [turn.reward for turn in trajectory.turns]
        good = [turn.info["match"] == "exact" for turn in trajectory.turns]
        for t in range(len(rewards)):
            end = t
            while end < len(rewards) and good[end]:
                end += 1  # the first mismatch from t on
            last = max(t, end - 1 if stop is before_mismatch else end)
            expected.append(sum(gamma ** (k - t) * rewards[k] for k in range(t, min(last, len(rewards) - 1) + 1)))
    assert RewardToGo(gamma, stop)(evidence) == pytest.approx(expected, abs=1e-9)


def test_ui_s1_by_hand():
    groups = told([Group("a", (rewarded(1.0, 0.1), rewarded(0.5)))], match=lambda turn, place: "exact" if turn.reward == 1.0 else "type")
    evidence = evidence_of(groups)
    step = TurnKeyed(RewardToGo(0.5, after_mismatch), step_of_turn, std=True)
    half = 0.55 / 2 / (0.55 / 2**0.5 + 1e-6)  # returns 1.05 and .5 at step 0, one alone at step 1
    assert step(evidence) == pytest.approx([half, 0, -half], abs=1e-9)
    released = TurnKeyed(turn_reward, std=True, keep_alone=True)(evidence)
    mean, std = statistics.fmean([1, 0.1, 0.5]), statistics.stdev([1, 0.1, 0.5])
    assert released == pytest.approx([(x - mean) / (std + 1e-6) for x in (1, 0.1, 0.5)], abs=1e-9)
    paper = SumOf(group_normalized, step)(evidence)
    assert paper == pytest.approx(group_normalized(evidence) + step(evidence), abs=1e-12)


@given(shapes=batch_shapes, scale=st.sampled_from([0.1, 3.0, 1e3]))
@MANY
def test_the_largest_return_is_one_whatever_the_scale(shapes: list, scale: float):
    groups = grown_groups(shapes)
    bigger = grown_groups([[[(n, w, c, scale * r) for n, w, c, r in turns] for turns in group] for group in shapes])
    evidence = evidence_of(groups)
    weights = LargestIsOne(0.99)(evidence)
    assert np.abs(weights).max(initial=0) <= 1.0
    for j, trajectory in enumerate(evidence.trajectories):
        returns = to_go([turn.reward for turn in trajectory.turns], 0.99)
        most = max(map(abs, returns)) or 1.0
        assert weights[evidence.turn_trajectory == j] == pytest.approx([x / most for x in returns], abs=1e-9)
    if all(abs(t.reward) > 1e-3 or t.reward == 0 for t in evidence.turns):
        assert weights == pytest.approx(LargestIsOne(0.99)(evidence_of(bigger)), abs=1e-6)


@given(shapes=batch_shapes, gamma=gammas, joint=st.booleans())
@MANY
def test_igpo_is_what_a_loop_gives(shapes: list, gamma: float, joint: bool):
    evidence = evidence_of(grown_groups(shapes))
    rewards = [turn.reward for turn in evidence.turns]
    keys = [
        (int(evidence.trajectory_group[j]), joint or i == len(t.turns) - 1)
        for j, t in enumerate(evidence.trajectories)
        for i in range(len(t.turns))
    ]
    z = centred(rewards, keys, True, False)
    expected = [
        x for j in range(len(evidence.trajectories)) for x in to_go([z[r] for r in np.flatnonzero(evidence.turn_trajectory == j)], gamma)
    ]
    assert IGPO(gamma, joint)(evidence) == pytest.approx(np.asarray(expected)[evidence.token_turn] if expected else [], abs=1e-6)


def test_equal_outcomes_with_different_gains_give_credit_and_without_discount_it_is_the_turns_own():
    evidence = evidence_of([Group("a", (rewarded(0.3, 1.0), rewarded(0.1, 1.0)))])
    assert not group_centred(evidence_of([Group("a", (rewarded(0.0, 1.0), rewarded(0.0, 1.0)))])).any()
    assert np.abs(IGPO()(evidence)).min() > 0
    own = credits_of(evidence, IGPO(gamma=0.0, joint=False)(evidence))
    assert own[0][1] == own[1][1] == 0.0 and own[0][0] == pytest.approx(-own[1][0]) and own[0][0] > 0


def test_columns_by_hand():
    # columns: two of the first turn, an observation, two of the second; the other member writes one token and stops
    long = make_trajectory(make_turn([make_call([9], [1, 2])], 1.0), make_turn([make_call([9, 1, 2, 8], [3, 4])], 3.0))
    evidence = evidence_of([Group("a", (long, rewarded(2.0)))])
    # the loss mask: 1 1 | 3 | 3 3 with the cut seen at the observation; the other: 2 0 | 0 | 0 0
    assert ColumnCentred()(evidence).tolist() == [-0.5, 0.5, 1.5, 1.5, 0.5]
    assert ColumnCentred(through=True)(evidence).tolist() == [1.0, 2.0, 1.5, 1.5, -1.0]
    with pytest.raises(ValueError, match="one row each"):
        ColumnCentred()(evidence_of([Group("a", (rewarded(1.0, 1.0),))]))
    assert ColumnCentred()(evidence_of([])).shape == (0,)


def game(first: float, second: float, *before: float) -> Group:
    """A game of two seats: what the last turn of each earned, and the turns before it."""
    return Group("t", (rewarded(*before, first, seat=0, task="ttt#1"), rewarded(*before, second, seat=1, task="ttt#2")))


def test_what_a_seat_always_wins_is_not_its_merit():
    assert not MARS()(evidence_of([game(1.0, -1.0)] * 3)).any()
    evidence = evidence_of([game(1.0, -1.0, 0.0), game(1.0, -1.0, 0.0), game(-1.0, 1.0, 0.0)])
    first_step = MARS(gamma=0.0, unique=False, whiten=False)(evidence)
    assert np.bincount(player_of_turn(evidence)[evidence.token_turn], first_step) == pytest.approx([0, 0], abs=1e-12)
    assert set(np.round(first_step, 9).tolist()) == {round(x / 6, 9) for x in (-1, 5, -7, 1, -5, 7)}
    swapped = MARS()(evidence_of([game(-1.0, 1.0, 0.0), game(-1.0, 1.0, 0.0), game(1.0, -1.0, 0.0)]))
    assert swapped == pytest.approx(-MARS()(evidence), abs=1e-9)


def test_every_game_has_its_own_players():
    other_game = [Group("k", (rewarded(5.0, task="kuhn#1"), rewarded(7.0, task="kuhn#2")))]
    plain, games = MARS(unique=False, whiten=False), [game(1.0, -1.0), game(0.0, 0.0)]
    assert plain(evidence_of(games + other_game)) == pytest.approx([*plain(evidence_of(games)), -1.0, 1.0], abs=1e-12)


@given(shapes=batch_shapes, flags=st.tuples(st.booleans(), st.booleans(), st.booleans()), seed=st.integers(0, 99))
@MANY
def test_mars_is_five_loops(shapes: list, flags: tuple, seed: int):
    rng = np.random.default_rng(seed)
    # Whole numbers: none of their sums and means stands at the edge of the ninth digit.
    shapes = [[[(new, written, cut, float(round(reward))) for new, written, cut, reward in turns] for turns in group] for group in shapes]
    groups = [
        dataclasses.replace(g, trajectories=tuple(t.replace(seat=int(rng.integers(2)), task="game#1") for t in g.trajectories))
        for g in grown_groups(shapes)
    ]
    evidence = evidence_of(groups)
    seats = [t.seat for t in evidence.trajectories for _ in t.turns]
    rewards = centred([turn.reward for turn in evidence.turns], seats, False, False)

    def white(values: list[float]) -> list[float]:
        spread = statistics.variance(values) if len(values) > 1 else 0.0
        return [(x - statistics.fmean(values)) / (spread + 1e-8) ** 0.5 for x in values]

    rewards = white(rewards) if flags[0] and rewards else rewards
    returns = [
        x for j in range(len(evidence.trajectories)) for x in to_go([rewards[r] for r in np.flatnonzero(evidence.turn_trajectory == j)], 1)
    ]
    tokens, owners = [round(returns[r], 9) for r in evidence.token_turn], [seats[r] for r in evidence.token_turn]
    if flags[1]:
        distinct = {seat: {x for x, o in zip(tokens, owners) if o == seat} for seat in owners}
        tokens = [x - statistics.fmean(distinct[o]) for x, o in zip(tokens, owners)]
    tokens = white(tokens) if flags[2] and tokens else tokens
    found = MARS(1.0, *flags)(evidence)
    assert found == pytest.approx(tokens, abs=1e-6)


@pytest.mark.parametrize(
    "estimator",
    [TurnKeyed(), TurnKeyed(std=True, key=step_of_turn), TurnKeyed(episode_return, std=True), TurnKeyed(RewardToGo(0.9), batch_of_turn)],
)
@given(shapes=batch_shapes, more=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_neither_observations_nor_rows_nor_order_matter(estimator: TurnKeyed, shapes: list, more: int, seed: int):
    longer = [[[(n + more, w, False, r) for n, w, _, r in turns] for turns in group] for group in shapes]
    groups = grown_groups(shapes)
    found = estimator(evidence_of(groups))
    assert found.tolist() == estimator(evidence_of(grown_groups(longer))).tolist()
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(g.trajectories)) for g in groups]
    permuted = [dataclasses.replace(g, trajectories=tuple(g.trajectories[i] for i in o)) for g, o in zip(groups, orders)]

    def by_trajectory(groups: list[Group]) -> dict[int, list[float]]:
        evidence = evidence_of(groups)
        values = estimator(evidence)
        return {id(t): values[evidence.token_trajectory == j].tolist() for j, t in enumerate(evidence.trajectories)}

    first, second = by_trajectory(groups), by_trajectory(permuted)
    assert first.keys() == second.keys() and all(first[k] == pytest.approx(second[k], abs=1e-7) for k in first)


@pytest.mark.parametrize("estimator", [TurnKeyed(turn_reward), TurnKeyed(episode_return, std=True), IGPO(), IGPO(joint=False), MARS()])
@given(reward=st.floats(-1e3, 1e3), size=st.integers(1, 9), turns=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_equal_rewards_give_exactly_nought(estimator: TurnKeyed, reward: float, size: int, turns: int):
    evidence = evidence_of([Group("a", tuple(rewarded(*[reward] * turns, task="a#1") for _ in range(size)))] * 2)
    assert not estimator(evidence).any()
