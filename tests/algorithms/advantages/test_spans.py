"""3D-SPO's token returns against a hand-worked table and the group-relative advantage."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from support.fixtures import (
    batch_shapes,
    make_call,
    make_credit_inputs,
    make_trajectory,
    make_turn,
    random_groups,
)

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.spans import SpanModulated
from agentrl_jax.algorithms.strategies.span_factors import token_ends, with_token_factors
from agentrl_jax.errors import UserError
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.text_codec import TextCodec
from agentrl_jax.trajectories import Group, Turn


def turn_with(factors: list[float], reward: float) -> Turn:
    turn = make_turn([make_call([1], [2] * len(factors))], reward)
    return dataclasses.replace(turn, info={"token_factors": factors})


def inputs_of(*groups: list[list[Turn]]) -> CreditInputs:
    members = [Group("t", tuple(make_trajectory(*turns) for turns in group)) for group in groups]
    return make_credit_inputs(members)


def test_a_span_of_wrong_coordinates_lowers_its_own_tokens():
    """R = 2 and 4, mean 3, std sqrt 2; the second token of the first has half of its return."""
    inputs = inputs_of([[turn_with([1, 0.5], 2.0)], [turn_with([1], 4.0)]])
    expected = np.array([2 - 3, 1 - 3, 4 - 3]) / (np.sqrt(2) + 1e-6)
    np.testing.assert_allclose(SpanModulated()(inputs), expected, rtol=1e-12)


def test_turns_are_discounted_from_the_first():
    """R = 1 + .5 * 2 = 2 and 0."""
    first = [turn_with([1], 1.0), turn_with([0.25], 2.0)]
    inputs = inputs_of([first, [turn_with([1], 0.0)]])
    std = np.std([2, 0], ddof=1) + 1e-6
    expected = [(2 - 1) / std, (0.5 - 1) / std, (0 - 1) / std]
    np.testing.assert_allclose(SpanModulated(gamma=0.5)(inputs), expected, rtol=1e-12)


def test_equal_returns_leave_the_spans_alone():
    inputs = inputs_of([[turn_with([1, 0.5], 3.0)], [turn_with([1], 3.0)]], [[turn_with([0.5], 2)]])
    np.testing.assert_allclose(SpanModulated()(inputs), [0, -1.5, 0, 1], rtol=2e-6)


@settings(max_examples=40, deadline=None)
@given(shapes=batch_shapes)
def test_factors_of_one_are_the_group_relative_advantage(shapes):
    groups = random_groups(shapes)

    def marked(turn: Turn) -> Turn:
        tokens = sum(len(call.action) for call in turn.calls)
        return dataclasses.replace(turn, info={"token_factors": [1.0] * tokens})

    groups = [
        dataclasses.replace(
            group,
            trajectories=tuple(
                t.replace(turns=tuple(map(marked, t.turns))) for t in group.trajectories
            ),
        )
        for group in groups
    ]
    inputs = make_credit_inputs(groups)
    np.testing.assert_allclose(SpanModulated()(inputs), group_normalized(inputs), atol=1e-9)


@pytest.mark.parametrize("factors", [[1.0], [1.0, float("nan")], [], "x"])
def test_wrong_factors_are_an_error(factors):
    turn = dataclasses.replace(turn_with([1, 1], 0.0), info={"token_factors": factors})
    with pytest.raises((UserError, ValueError)):
        SpanModulated()(inputs_of([[turn]]))
    with pytest.raises(UserError, match="token_factors"):
        SpanModulated()(inputs_of([[dataclasses.replace(turn, info={})]]))


def test_spans_of_characters_become_factors_of_tokens():
    """Bytes as tokens: an accented letter has two, of which the second completes it."""
    codec = TextCodec(byte_tokenizer())
    text = 'é{"x": 1.5}'
    ids = codec.encode_plain(text)
    assert len(ids) == len(text) + 1
    np.testing.assert_array_equal(
        token_ends(codec.decode, tuple(ids.tolist())), [0, *range(1, len(text) + 1)]
    )
    turn = make_turn([make_call([1], ids)])
    start = text.index("1.5")
    turn = dataclasses.replace(turn, info={"span_factors": [[start, start + 3, 0.25]]})
    factors = with_token_factors(turn, codec.decode).info["token_factors"]
    decoded = [codec.decode((int(i),)) for i, f in zip(ids, factors) if f == 0.25]
    assert "".join(decoded) == "1.5" and set(factors) == {0.25, 1.0}


@pytest.mark.parametrize("spans", [[[2, 1, 0.5]], [[0, 1]], [[0, 1, float("nan")]], 3])
def test_wrong_spans_are_an_error(spans):
    codec = TextCodec(byte_tokenizer())
    turn = make_turn([make_call([1], codec.encode_plain("ab"))])
    with pytest.raises(UserError, match="span_factors"):
        with_token_factors(dataclasses.replace(turn, info={"span_factors": spans}), codec.decode)
