"""Token weights against tables worked by hand and nested loops."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fixtures import TurnShape, batch_shapes, random_groups, trajectories_with_turns

from agentrl_jax.algorithms.advantages.token_weights import (
    SequenceSum,
    StepSum,
    TrajectorySum,
    sequence_mean,
    step_mean,
    token_mean,
    trajectory_mean,
    turn_mean,
)
from agentrl_jax.learner.sequences import TokenIndex, collate

Aggregation = Callable[[TokenIndex], np.ndarray]
MEANS = pytest.mark.parametrize(
    "aggregation", [token_mean, trajectory_mean, sequence_mean, step_mean, turn_mean]
)

# One trajectory with calls of 3 tokens and of 1, one with a call of 2.
BY_HAND: list[list[list[TurnShape]]] = [[[(1, 3, False, 0), (2, 1, False, 0)], [(1, 2, False, 0)]]]


@pytest.mark.parametrize(
    ("aggregation", "weights"),
    [
        (token_mean, [1 / 6] * 6),
        (trajectory_mean, [1 / 8] * 4 + [1 / 4] * 2),
        (TrajectorySum(10.0), [1 / 20] * 6),
        (turn_mean, [1 / 12] * 3 + [1 / 4] + [1 / 4] * 2),
    ],
)
def test_weights_are_those_of_the_table(aggregation: Aggregation, weights: list[float]):
    assert aggregation(collate(random_groups(BY_HAND)).token_index) == pytest.approx(
        weights, abs=1e-15
    )


@given(shapes=batch_shapes)
@settings(max_examples=200, deadline=None)
def test_ragged_groups_match_loops(shapes: list):
    groups = random_groups(shapes)
    indices = collate(groups).token_index
    token_counts = [
        [len(call.action) for call in trajectory.calls]
        for trajectory in trajectories_with_turns(groups)
    ]
    by_token, by_trajectory, by_constant, by_turn = [], [], [], []
    for turns in token_counts:
        for tokens in turns:
            by_token += [1 / sum(map(sum, token_counts))] * tokens
            by_trajectory += [1 / len(token_counts) / sum(turns)] * tokens
            by_constant += [1 / len(token_counts) / 9.0] * tokens
            by_turn += [1 / len(token_counts) / len(turns) / tokens] * tokens
    assert token_mean(indices) == pytest.approx(by_token, abs=1e-14)
    assert trajectory_mean(indices) == pytest.approx(by_trajectory, abs=1e-14)
    assert TrajectorySum(9.0)(indices) == pytest.approx(by_constant, abs=1e-14)
    assert turn_mean(indices) == pytest.approx(by_turn, abs=1e-14)


@MEANS
@given(shapes=batch_shapes)
@settings(max_examples=60, deadline=None)
def test_the_weights_of_a_mean_sum_to_one(aggregation: Aggregation, shapes: list):
    weights = aggregation(collate(random_groups(shapes)).token_index)
    assert weights.sum() == pytest.approx(1.0 if len(weights) else 0.0, abs=1e-12)


@given(shapes=batch_shapes)
@settings(max_examples=60, deadline=None)
def test_trajectory_mean_gives_every_trajectory_the_same_weight(shapes: list):
    groups = random_groups(shapes)
    indices = collate(groups).token_index
    for aggregation in (trajectory_mean, turn_mean):
        shares = np.bincount(indices.token_trajectory, aggregation(indices))
        assert shares == pytest.approx(
            np.full(
                len(trajectories_with_turns(groups)),
                1 / max(len(trajectories_with_turns(groups)), 1),
            ),
            abs=1e-12,
        )


def test_trajectory_sum_grows_with_the_number_of_tokens():
    indices = collate(random_groups(BY_HAND)).token_index
    assert np.bincount(indices.token_trajectory, TrajectorySum(10.0)(indices)) == pytest.approx(
        [0.2, 0.1], abs=1e-15
    )


def shares_of_turns(shapes: list, aggregation: Aggregation) -> np.ndarray:
    indices = collate(random_groups(shapes)).token_index
    return np.bincount(indices.token_turn, aggregation(indices))


@given(shapes=batch_shapes, times=st.integers(2, 4), which=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_duplicating_a_turns_tokens_leaves_the_weight_of_every_turn(
    shapes: list, times: int, which: int
):
    turns = [turn for group in shapes for trajectory in group for turn in trajectory]
    if not turns:
        return
    chosen, number, longer = which % len(turns), 0, []
    for group in shapes:
        longer.append([])
        for trajectory in group:
            longer[-1].append([])
            for new, written, cut, reward in trajectory:
                longer[-1][-1].append(
                    (new, written * times if number == chosen else written, cut, reward)
                )
                number += 1
    assert shares_of_turns(longer, turn_mean) == pytest.approx(
        shares_of_turns(shapes, turn_mean), abs=1e-14
    )


@MEANS
@given(shapes=batch_shapes, more=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_more_observation_tokens_change_no_weight(
    aggregation: Aggregation, shapes: list, more: int
):
    longer = [
        [
            [(new + more, written, cut, reward) for new, written, cut, reward in turns]
            for turns in group
        ]
        for group in shapes
    ]
    before, after = (aggregation(collate(random_groups(x)).token_index) for x in (shapes, longer))
    assert before.tolist() == after.tolist()


@MEANS
def test_without_tokens_there_are_no_weights(aggregation: Aggregation):
    assert aggregation(collate([]).token_index).shape == (0,)


def test_the_three_means_agree_where_all_sequences_have_the_same_length():
    indices = collate(
        random_groups([[[(1, 3, False, 0.0), (1, 3, False, 0.0)] for _ in range(4)]] * 2)
    ).token_index
    assert trajectory_mean(indices) == pytest.approx(token_mean(indices), abs=1e-15)
    assert turn_mean(indices) == pytest.approx(token_mean(indices), abs=1e-15)
    assert TrajectorySum(6.0)(indices) == pytest.approx(token_mean(indices), abs=1e-15)


@given(shapes=batch_shapes)
@settings(max_examples=60, deadline=None)
def test_means_and_sums_over_sequences_and_steps_match_loops(shapes: list):
    groups = random_groups(shapes)
    indices = collate(groups).token_index
    turns = [
        len(call.action)
        for trajectory in trajectories_with_turns(groups)
        for call in trajectory.calls
    ]
    rows = [int(row.action_mask.sum()) for row in collate(groups).sequences]
    for mean, total, owners in ((step_mean, StepSum, turns), (sequence_mean, SequenceSum, rows)):
        assert mean(indices) == pytest.approx(
            [1 / len(owners) / n for n in owners for _ in range(n)], abs=1e-14
        )
        assert total(4.0)(indices) == pytest.approx(
            [1 / len(owners) / 4.0 for n in owners for _ in range(n)], abs=1e-14
        )


def test_a_rewritten_history_counts_as_several_sequences():
    indices = collate(
        random_groups([[[(1, 3, False, 0), (1, 1, True, 0)], [(1, 2, False, 0), (1, 2, False, 0)]]])
    ).token_index
    assert sequence_mean(indices) == pytest.approx([1 / 9] * 3 + [1 / 3] + [1 / 12] * 4, abs=1e-15)
    assert step_mean(indices) == pytest.approx([1 / 12] * 3 + [1 / 4] + [1 / 8] * 4, abs=1e-15)
    assert trajectory_mean(indices) == pytest.approx([1 / 8] * 8, abs=1e-15)
