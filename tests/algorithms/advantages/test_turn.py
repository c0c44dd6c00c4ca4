"""Turn-level credit against loops over trajectories and tables of the papers."""

import dataclasses
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import (
    batch_shapes,
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
    random_groups,
    with_info,
)

from agentrl_jax.algorithms.advantages.group import WeightedSum, group_centered, group_normalized
from agentrl_jax.algorithms.advantages.grouping import (
    anchor_of_turn,
    batch_of_turn,
    group_of_turn,
    player_of_turn,
    step_of_turn,
)
from agentrl_jax.algorithms.advantages.turn import (
    IGPO,
    MARS,
    ColumnCentered,
    RewardToGo,
    ScaleByMax,
    TurnGroupedBy,
    episode_return,
    stop_at_mismatch,
    stop_before_mismatch,
    turn_reward,
)
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs, collate
from agentrl_jax.trajectories import Group, Trajectory

MANY = settings(max_examples=60, deadline=None)
gammas = st.sampled_from([0.0, 0.5, 0.95, 1.0])


def rewarded(*rewards: float, **fields: object) -> Trajectory:
    """A trajectory with a turn of one token for each reward."""
    return make_trajectory(
        *(make_turn([make_call([1], [2])], reward) for reward in rewards)
    ).replace(**fields)


def credits_of(inputs: CreditInputs, advantage: np.ndarray) -> list[list[float]]:
    """The one value of each turn, by trajectory."""
    out: list[list[float]] = [[] for _ in inputs.trajectories]
    for r, j in enumerate(inputs.turn_trajectory):
        (value,) = set(advantage[inputs.token_turn == r].tolist())
        out[j].append(value)
    return out


def to_go(rewards: list[float], gamma: float) -> list[float]:
    return [
        sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards)))
        for t in range(len(rewards))
    ]


def centred(values: list[float], keys: list, std: bool, keep: bool) -> list[float]:
    out = []
    for value, key in zip(values, keys):
        same = [v for v, k in zip(values, keys) if k == key]
        alone = len(same) == 1
        x = value - (0.0 if alone and keep else statistics.fmean(same))
        out.append(x / ((1.0 if alone else statistics.stdev(same)) + 1e-6) if std else x)
    return out


@pytest.mark.parametrize("key", [group_of_turn, batch_of_turn, step_of_turn, anchor_of_turn])
@given(
    shapes=batch_shapes,
    gamma=gammas,
    std=st.booleans(),
    keep=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_turns_grouped_by_key_match_a_loop(
    key: Callable, shapes: list, gamma: float, std: bool, keep: bool, seed: int
):
    rng = np.random.default_rng(seed)
    groups = with_info(
        random_groups(shapes),
        anchor=lambda turn, place: f"room {rng.integers(3)}",
        step=lambda turn, place: place,
    )
    inputs = make_credit_inputs(groups)
    returns = [
        x for t in inputs.trajectories for x in to_go([turn.reward for turn in t.turns], gamma)
    ]
    group = [
        int(inputs.trajectory_group[j]) for j, t in enumerate(inputs.trajectories) for _ in t.turns
    ]
    places = [i for t in inputs.trajectories for i in range(len(t.turns))]
    anchors = [turn.info["anchor"] for turn in inputs.turns]
    keys = {
        group_of_turn: group,
        batch_of_turn: [0] * len(group),
        step_of_turn: list(zip(group, places)),
        anchor_of_turn: list(zip(group, anchors)),
    }[key]
    expected = np.asarray(centred(returns, keys, std, keep))[inputs.token_turn] if returns else []
    assert TurnGroupedBy(RewardToGo(gamma), key, std=std, keep_singletons=keep)(
        inputs
    ) == pytest.approx(expected, abs=1e-7)
    bare = TurnGroupedBy(RewardToGo(gamma), None)(inputs)
    assert bare == pytest.approx(
        np.asarray(returns)[inputs.token_turn] if returns else [], abs=1e-9
    )


def test_anchors_are_the_last_observation_unless_info_has_one():
    inputs = make_credit_inputs(
        random_groups(
            [
                [[(1, 1, False, 0.0), (1, 1, False, 0.0)], [(1, 1, False, 0.0)]],
                [[(1, 1, False, 0.0)]],
            ]
        )
    )
    # opening, then the observation; the same opening again; a different group
    assert anchor_of_turn(inputs).tolist() == [0, 1, 0, 2]


def test_gigpo_without_a_common_state_has_no_step_advantage():
    groups = with_info(
        random_groups([[[(1, 2, False, 1.0)], [(1, 1, False, 0.0)]]]),
        anchor=lambda turn, place: id(turn),
    )
    inputs = make_credit_inputs(groups)
    step = TurnGroupedBy(RewardToGo(0.95), anchor_of_turn)
    assert not step(inputs).any()
    assert WeightedSum(group_centered, step)(inputs).tolist() == group_centered(inputs).tolist()


def test_gigpo_by_hand():
    def member(*turns: tuple[str, float]) -> Trajectory:
        trajectory_turns = [make_turn([make_call([1], [2])], reward) for _, reward in turns]
        return make_trajectory(
            *(
                dataclasses.replace(t, info={"anchor": a})
                for t, (a, _) in zip(trajectory_turns, turns)
            )
        )

    inputs = make_credit_inputs(
        [Group("a", (member(("s", 0.0), ("x", 1.0)), member(("s", 0.0), ("y", 0.0), ("s", 0.0))))]
    )
    # returns from s: .5, 0, 0 with gamma .5; x and y occur once
    assert TurnGroupedBy(RewardToGo(0.5), anchor_of_turn)(inputs) == pytest.approx(
        [1 / 3, 0, -1 / 6, 0, -1 / 6], abs=1e-12
    )
    total = WeightedSum(group_centered, TurnGroupedBy(RewardToGo(0.5), anchor_of_turn), 1.0, 3.0)(
        inputs
    )
    assert total == pytest.approx([1.5, 0.5, -1.0, -0.5, -1.0], abs=1e-12)
    # over steps the longer trajectory has more weight: mean of 1, 1, 0, 0, 0
    assert TurnGroupedBy(episode_return)(inputs) == pytest.approx(
        [0.6, 0.6, -0.4, -0.4, -0.4], abs=1e-12
    )


def test_returns_stop_at_a_mismatch_as_in_the_paper_or_in_the_released_code():
    groups = with_info(
        [Group("a", (rewarded(1.0, 1.0, 0.1, 1.0),))],
        match=lambda turn, place: "type" if place == 2 else "exact",
    )
    inputs = make_credit_inputs(groups)
    assert RewardToGo(0.5, stop_before_mismatch)(inputs) == pytest.approx(
        [1.5, 1, 0.1, 1], abs=1e-12
    )
    assert RewardToGo(0.5, stop_at_mismatch)(inputs) == pytest.approx(
        [1.525, 1.05, 0.1, 1], abs=1e-12
    )
    with pytest.raises(UserError, match="no 'match'"):
        RewardToGo(0.5, stop_at_mismatch)(
            make_credit_inputs(random_groups([[[(1, 1, False, 0.0)]]]))
        )
    with pytest.raises(UserError, match="need the credit inputs"):
        RewardToGo(0.5, stop_at_mismatch)(collate([]).token_index)


@given(
    shapes=batch_shapes,
    gamma=gammas,
    seed=st.integers(0, 99),
    stop=st.sampled_from([stop_before_mismatch, stop_at_mismatch]),
)
@MANY
def test_stopped_returns_match_a_loop(shapes: list, gamma: float, seed: int, stop: Callable):
    rng = np.random.default_rng(seed)
    inputs = make_credit_inputs(
        with_info(
            random_groups(shapes),
            match=lambda turn, place: str(rng.choice(["exact", "type", "none"])),
        )
    )
    expected = []
    for trajectory in inputs.trajectories:
        rewards = [turn.reward for turn in trajectory.turns]
        good = [turn.info["match"] == "exact" for turn in trajectory.turns]
        for t in range(len(rewards)):
            end = t
            while end < len(rewards) and good[end]:
                end += 1  # the first mismatch from t on
            last = max(t, end - 1 if stop is stop_before_mismatch else end)
            expected.append(
                sum(
                    gamma ** (k - t) * rewards[k] for k in range(t, min(last, len(rewards) - 1) + 1)
                )
            )
    assert RewardToGo(gamma, stop)(inputs) == pytest.approx(expected, abs=1e-9)


def test_ui_s1_by_hand():
    groups = with_info(
        [Group("a", (rewarded(1.0, 0.1), rewarded(0.5)))],
        match=lambda turn, place: "exact" if turn.reward == 1.0 else "type",
    )
    inputs = make_credit_inputs(groups)
    step = TurnGroupedBy(RewardToGo(0.5, stop_at_mismatch), step_of_turn, std=True)
    # returns 1.05 and .5 at step 0, a single one at step 1
    half = 0.55 / 2 / (0.55 / 2**0.5 + 1e-6)
    assert step(inputs) == pytest.approx([half, 0, -half], abs=1e-9)
    released = TurnGroupedBy(turn_reward, std=True, keep_singletons=True)(inputs)
    mean, std = statistics.fmean([1, 0.1, 0.5]), statistics.stdev([1, 0.1, 0.5])
    assert released == pytest.approx([(x - mean) / (std + 1e-6) for x in (1, 0.1, 0.5)], abs=1e-9)
    paper = WeightedSum(group_normalized, step)(inputs)
    assert paper == pytest.approx(group_normalized(inputs) + step(inputs), abs=1e-12)


@given(shapes=batch_shapes, scale=st.sampled_from([0.1, 3.0, 1e3]))
@MANY
def test_the_largest_return_is_one_at_any_scale(shapes: list, scale: float):
    groups = random_groups(shapes)
    bigger = random_groups(
        [[[(n, w, c, scale * r) for n, w, c, r in turns] for turns in group] for group in shapes]
    )
    inputs = make_credit_inputs(groups)
    weights = ScaleByMax(0.99)(inputs)
    assert np.abs(weights).max(initial=0) <= 1.0
    for j, trajectory in enumerate(inputs.trajectories):
        returns = to_go([turn.reward for turn in trajectory.turns], 0.99)
        most = max(map(abs, returns)) or 1.0
        assert weights[inputs.turn_trajectory == j] == pytest.approx(
            [x / most for x in returns], abs=1e-9
        )
    if all(abs(t.reward) > 1e-3 or t.reward == 0 for t in inputs.turns):
        assert weights == pytest.approx(ScaleByMax(0.99)(make_credit_inputs(bigger)), abs=1e-6)


@given(shapes=batch_shapes, gamma=gammas, joint=st.booleans())
@MANY
def test_igpo_matches_a_loop(shapes: list, gamma: float, joint: bool):
    inputs = make_credit_inputs(random_groups(shapes))
    rewards = [turn.reward for turn in inputs.turns]
    keys = [
        (int(inputs.trajectory_group[j]), joint or i == len(t.turns) - 1)
        for j, t in enumerate(inputs.trajectories)
        for i in range(len(t.turns))
    ]
    z = centred(rewards, keys, True, False)
    expected = [
        x
        for j in range(len(inputs.trajectories))
        for x in to_go([z[r] for r in np.flatnonzero(inputs.turn_trajectory == j)], gamma)
    ]
    assert IGPO(gamma, joint)(inputs) == pytest.approx(
        np.asarray(expected)[inputs.token_turn] if expected else [], abs=1e-6
    )


def test_different_gains_give_credit_at_equal_outcomes_and_with_gamma_zero_only_to_their_turn():
    inputs = make_credit_inputs([Group("a", (rewarded(0.3, 1.0), rewarded(0.1, 1.0)))])
    assert not group_centered(
        make_credit_inputs([Group("a", (rewarded(0.0, 1.0), rewarded(0.0, 1.0)))])
    ).any()
    assert np.abs(IGPO()(inputs)).min() > 0
    gains_alone = credits_of(inputs, IGPO(gamma=0.0, joint_statistics=False)(inputs))
    assert (
        gains_alone[0][1] == gains_alone[1][1] == 0.0
        and gains_alone[0][0] == pytest.approx(-gains_alone[1][0])
        and gains_alone[0][0] > 0
    )


def test_columns_by_hand():
    # columns: two of the first turn, an observation, two of the second; the other member has one
    # token
    long = make_trajectory(
        make_turn([make_call([9], [1, 2])], 1.0), make_turn([make_call([9, 1, 2, 8], [3, 4])], 3.0)
    )
    inputs = make_credit_inputs([Group("a", (long, rewarded(2.0)))])
    # returns to go, cut at the observation: 1 1 | 3 | 3 3; those of the other member: 2 0 | 0 | 0 0
    assert ColumnCentered()(inputs).tolist() == [-0.5, 0.5, 1.5, 1.5, 0.5]
    assert ColumnCentered(through_observations=True)(inputs).tolist() == [
        1.0,
        2.0,
        1.5,
        1.5,
        -1.0,
    ]
    with pytest.raises(ValueError, match="one training sequence each"):
        ColumnCentered()(make_credit_inputs([Group("a", (rewarded(1.0, 1.0),))]))
    assert ColumnCentered()(make_credit_inputs([])).shape == (0,)


def game(first: float, second: float, *before: float) -> Group:
    """A game of two players: the reward of each one's last turn, and of the turns before it."""
    return Group(
        "t",
        (
            rewarded(*before, first, agent_index=0, task="ttt#1"),
            rewarded(*before, second, agent_index=1, task="ttt#2"),
        ),
    )


def test_a_players_constant_return_gives_no_advantage():
    assert not MARS()(make_credit_inputs([game(1.0, -1.0)] * 3)).any()
    inputs = make_credit_inputs([game(1.0, -1.0, 0.0), game(1.0, -1.0, 0.0), game(-1.0, 1.0, 0.0)])
    first_step = MARS(gamma=0.0, center_distinct=False, whiten=False)(inputs)
    assert np.bincount(player_of_turn(inputs)[inputs.token_turn], first_step) == pytest.approx(
        [0, 0], abs=1e-12
    )
    assert set(np.round(first_step, 9).tolist()) == {round(x / 6, 9) for x in (-1, 5, -7, 1, -5, 7)}
    swapped = MARS()(
        make_credit_inputs([game(-1.0, 1.0, 0.0), game(-1.0, 1.0, 0.0), game(1.0, -1.0, 0.0)])
    )
    assert swapped == pytest.approx(-MARS()(inputs), abs=1e-9)


def test_every_game_has_its_own_players():
    other_game = [Group("k", (rewarded(5.0, task="kuhn#1"), rewarded(7.0, task="kuhn#2")))]
    plain, games = MARS(center_distinct=False, whiten=False), [game(1.0, -1.0), game(0.0, 0.0)]
    assert plain(make_credit_inputs(games + other_game)) == pytest.approx(
        [*plain(make_credit_inputs(games)), -1.0, 1.0], abs=1e-12
    )


@given(
    shapes=batch_shapes,
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    seed=st.integers(0, 99),
)
@MANY
def test_mars_is_five_loops(shapes: list, flags: tuple, seed: int):
    rng = np.random.default_rng(seed)
    # Integers: their sums and means are never at a rounding boundary of the ninth digit.
    shapes = [
        [
            [(new, written, cut, float(round(reward))) for new, written, cut, reward in turns]
            for turns in group
        ]
        for group in shapes
    ]
    groups = [
        dataclasses.replace(
            g,
            trajectories=tuple(
                t.replace(agent_index=int(rng.integers(2)), task="game#1") for t in g.trajectories
            ),
        )
        for g in random_groups(shapes)
    ]
    inputs = make_credit_inputs(groups)
    players = [t.agent_index for t in inputs.trajectories for _ in t.turns]
    rewards = centred([turn.reward for turn in inputs.turns], players, False, False)

    def white(values: list[float]) -> list[float]:
        spread = statistics.variance(values) if len(values) > 1 else 0.0
        return [(x - statistics.fmean(values)) / (spread + 1e-8) ** 0.5 for x in values]

    rewards = white(rewards) if flags[0] and rewards else rewards
    returns = [
        x
        for j in range(len(inputs.trajectories))
        for x in to_go([rewards[r] for r in np.flatnonzero(inputs.turn_trajectory == j)], 1)
    ]
    tokens, owners = (
        [round(returns[r], 9) for r in inputs.token_turn],
        [players[r] for r in inputs.token_turn],
    )
    if flags[1]:
        distinct = {player: {x for x, o in zip(tokens, owners) if o == player} for player in owners}
        tokens = [x - statistics.fmean(distinct[o]) for x, o in zip(tokens, owners)]
    tokens = white(tokens) if flags[2] and tokens else tokens
    result = MARS(1.0, *flags)(inputs)
    assert result == pytest.approx(tokens, abs=1e-6)


@pytest.mark.parametrize(
    "estimator",
    [
        TurnGroupedBy(),
        TurnGroupedBy(std=True, key=step_of_turn),
        TurnGroupedBy(episode_return, std=True),
        TurnGroupedBy(RewardToGo(0.9), batch_of_turn),
    ],
)
@given(shapes=batch_shapes, more=st.integers(1, 9), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_observations_training_sequences_and_order_do_not_matter(
    estimator: TurnGroupedBy, shapes: list, more: int, seed: int
):
    longer = [
        [[(n + more, w, False, r) for n, w, _, r in turns] for turns in group] for group in shapes
    ]
    groups = random_groups(shapes)
    result = estimator(make_credit_inputs(groups))
    assert result.tolist() == estimator(make_credit_inputs(random_groups(longer))).tolist()
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(g.trajectories)) for g in groups]
    permuted = [
        dataclasses.replace(g, trajectories=tuple(g.trajectories[i] for i in o))
        for g, o in zip(groups, orders)
    ]

    def by_trajectory(groups: list[Group]) -> dict[int, list[float]]:
        inputs = make_credit_inputs(groups)
        values = estimator(inputs)
        return {
            id(t): values[inputs.token_trajectory == j].tolist()
            for j, t in enumerate(inputs.trajectories)
        }

    first, second = by_trajectory(groups), by_trajectory(permuted)
    assert first.keys() == second.keys() and all(
        first[k] == pytest.approx(second[k], abs=1e-7) for k in first
    )


@pytest.mark.parametrize(
    "estimator",
    [
        TurnGroupedBy(turn_reward),
        TurnGroupedBy(episode_return, std=True),
        IGPO(),
        IGPO(joint_statistics=False),
        MARS(),
    ],
)
@given(reward=st.floats(-1e3, 1e3), size=st.integers(1, 9), turns=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_equal_rewards_give_exactly_zero(
    estimator: TurnGroupedBy, reward: float, size: int, turns: int
):
    inputs = make_credit_inputs(
        [Group("a", tuple(rewarded(*[reward] * turns, task="a#1") for _ in range(size)))] * 2
    )
    assert not estimator(inputs).any()
