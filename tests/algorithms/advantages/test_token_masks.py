"""Token masks and trajectory checks."""

import dataclasses

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

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.grouping import batch_of_turn, group_of_turn
from agentrl_jax.algorithms.advantages.token_masks import (
    AllOf,
    ByTurnIndex,
    MaskFaulty,
    OnlyAfterMarker,
    OnlyAgents,
    OnlyNamedCalls,
    OnlySources,
    QuantileBand,
    StdBand,
    TopEntropyTurns,
    TurnNLLBand,
    mask_overlong_trajectories,
    mask_void_trajectories,
    select_tokens,
)
from agentrl_jax.algorithms.advantages.token_weights import (
    sequence_mean,
    step_mean,
    token_mean,
    trajectory_mean,
    turn_mean,
)
from agentrl_jax.algorithms.advantages.trajectory_checks import (
    RepetitionCheck,
    UnreadableTextCheck,
    is_overlong,
    is_void_text,
)
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant
from agentrl_jax.trajectories import Group, Trajectory


def trajectory_of_texts(*texts: str, **fields: object) -> Trajectory:
    """A trajectory with a turn of two tokens for each text."""
    turns = (
        dataclasses.replace(make_turn([make_call([1], [2, 3])]), action=assistant(text))
        for text in texts
    )
    return make_trajectory(*turns).replace(**fields)


@pytest.mark.parametrize(
    ("text", "void"),
    [
        ("```python\nprint(1)\n```", False),
        ("so\n```py\nx = 1\n``` then", False),
        (r"the answer is \boxed{4}", False),
        (r"\boxed{\frac{1}{2}}", False),
        (r"\boxed {x}", False),
        ("", True),
        ("I think it is 4.", True),
        ("```python\nprint(1)", True),  # the block is not closed
        ("```python\n   \n```", True),  # an empty block
        ("```\nprint(1)\n```", True),  # a block without a language
        ("```json\n{}\n```", True),
        (r"\boxed{4", True),
        ("boxed{4}", True),
        (r"\boxed{\frac{1}{2}", True),
    ],
)
def test_a_void_turn_has_neither_code_nor_an_answer(text: str, void: bool):
    assert is_void_text(text) == void


def test_a_void_trajectory_counts_but_is_not_trained():
    good, void = trajectory_of_texts(r"\boxed{1}"), trajectory_of_texts("hm", r"\boxed{1}")
    group = Group(
        "a",
        (
            dataclasses.replace(good, turns=(dataclasses.replace(good.turns[0], reward=1.0),)),
            good,
            void,
        ),
    )
    inputs = make_credit_inputs([group])
    assert mask_void_trajectories(inputs).tolist() == [True] * 4 + [False] * 4
    assert mask_void_trajectories(
        make_credit_inputs(with_info([group], void=lambda turn, place: False))
    ).all()
    with_it, without = (
        group_normalized(inputs),
        group_normalized(make_credit_inputs([Group("a", group.trajectories[:2])])),
    )
    assert abs(with_it[0] - without[0]) > 0.1


def test_truncated_trajectories_are_not_trained():
    cut = [
        trajectory_of_texts("a", stop_reason=reason)
        for reason in ("terminated", "truncated", "turns", "tokens", "context", "error")
    ]
    assert [is_overlong(t) for t in cut] == [False, False, True, True, True, False]
    assert (
        mask_overlong_trajectories(make_credit_inputs([Group("a", tuple(cut))])).tolist()
        == [True] * 4 + [False] * 6 + [True] * 2
    )


def test_repetition_and_unreadable_text():
    assert RepetitionCheck(2, 0.4)(trajectory_of_texts("a b a b a b")) and not RepetitionCheck(
        2, 0.7
    )(trajectory_of_texts("a b a b a b"))
    assert not RepetitionCheck(2, 0.0)(trajectory_of_texts("a b c d")) and not RepetitionCheck(
        5, 0.0
    )(trajectory_of_texts("a a"))
    assert UnreadableTextCheck(0.3)(
        trajectory_of_texts("fine", "a��b")
    ) and not UnreadableTextCheck(0.5)(trajectory_of_texts("a��b"))
    assert UnreadableTextCheck(0.0)(trajectory_of_texts("\x00")) and not UnreadableTextCheck(0.0)(
        trajectory_of_texts("tab\tand\nnewline", "")
    )
    both = make_credit_inputs(
        [Group("a", (trajectory_of_texts("a a a a"), trajectory_of_texts("fine")))]
    )
    assert MaskFaulty((RepetitionCheck(1, 0.5), UnreadableTextCheck(0.1)))(both).tolist() == [
        False,
        False,
        True,
        True,
    ]


@given(shapes=batch_shapes, share=st.sampled_from([0.2, 0.5, 0.8, 1.0]), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_turns_of_highest_entropy_are_selected(shapes: list, share: float, seed: int):
    inputs = make_credit_inputs(random_groups(shapes), "token_entropy", seed=seed)
    assert inputs.token_entropy is not None
    for key in (group_of_turn, batch_of_turn):
        keep = TopEntropyTurns(share, key)(inputs)
        for k in set(key(inputs).tolist()):
            turns = [r for r in range(len(inputs.turns)) if key(inputs)[r] == k]
            means = {r: float(np.mean(inputs.token_entropy[inputs.token_turn == r])) for r in turns}
            best = sorted(turns, key=lambda r: -means[r])[: max(1, int(share * len(turns) + 1e-9))]
            for r in turns:
                assert set(keep[inputs.token_turn == r].tolist()) == {r in best}
    assert TopEntropyTurns(1.0)(inputs).all()


def test_masks_by_name_source_agent_and_marker():
    calls = [
        make_call([1], [2, 3]),
        dataclasses.replace(make_call([1], [7, 4, 7, 5]), source="patch"),
        make_call([1], [6]),
    ]
    turns = [
        dataclasses.replace(make_turn(calls[:2]), info={"calls": ["thought", "answer"]}),
        make_turn(calls[2:]),
    ]
    inputs = make_credit_inputs(
        [
            Group(
                "a",
                (
                    make_trajectory(*turns),
                    make_trajectory(make_turn([make_call([1], [8])])).replace(agent="b"),
                ),
            )
        ]
    )
    assert OnlyNamedCalls(("answer",))(inputs).tolist() == [False] * 2 + [True] * 4 + [False] * 2
    assert (
        OnlyNamedCalls(("thought", "action"))(inputs).tolist()
        == [True] * 2 + [False] * 4 + [True] * 2
    )
    assert OnlySources()(inputs).tolist() == [True] * 2 + [False] * 4 + [True] * 2
    assert OnlyAgents(("policy",))(inputs).tolist() == [True] * 7 + [False]
    assert OnlyAfterMarker((7,))(inputs).tolist() == [
        True,
        True,
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert OnlyAfterMarker((4, 7))(inputs).tolist() == [
        True,
        True,
        False,
        False,
        False,
        True,
        True,
        True,
    ]
    assert AllOf((OnlySources(), OnlyAgents(("b",))))(inputs).tolist() == [False] * 7 + [True]
    assert AllOf(())(inputs).all()
    assert ByTurnIndex((0.1, 0.01))(inputs).tolist() == [0.1] * 6 + [0.01, 0.1]
    with pytest.raises(UserError, match="has 2 calls but its info names 1"):
        OnlyNamedCalls(("answer",))(
            make_credit_inputs(
                [
                    Group(
                        "a",
                        (make_trajectory(dataclasses.replace(turns[0], info={"calls": ["x"]})),),
                    )
                ]
            )
        )
    with pytest.raises(ValueError, match="counting tokens"):
        OnlySources()(select_tokens(inputs, OnlySources()(inputs)))


def test_the_middle_quantiles_of_the_likelihoods_are_selected():
    values = np.arange(11.0)
    assert np.flatnonzero(QuantileBand(0.2, 0.8)(values)).tolist() == list(range(2, 9))
    assert (QuantileBand(0.2, 0.8)(-values) == QuantileBand(0.2, 0.8)(values)).all()
    assert np.flatnonzero(StdBand(1.0)(values)).tolist() == list(range(2, 9))
    assert QuantileBand(0.2, 0.8)(np.zeros(0)).shape == StdBand(1.0)(np.zeros(0)).shape == (0,)
    turns = [make_turn([make_call([1], [2, 3], logp=[-x - 0.5, -x + 0.5])]) for x in values]
    inputs = make_credit_inputs([Group("a", (make_trajectory(*turns),))])
    assert TurnNLLBand(QuantileBand(0.2, 0.8))(inputs)[::2].tolist() == [
        2 <= x <= 8 for x in values
    ]
    scored = dataclasses.replace(inputs, token_logp=np.repeat(-(values[::-1] ** 2), 2))
    assert TurnNLLBand(QuantileBand(0.0, 0.5))(scored)[::2].tolist() == [x >= 5 for x in values]


@given(shapes=batch_shapes, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_means_over_the_tokens_of_a_mask_sum_to_one(shapes: list, seed: int):
    inputs = make_credit_inputs(random_groups(shapes), "token_value")
    mask = np.random.default_rng(seed).random(len(inputs.token_sequence)) < 0.5
    left = select_tokens(inputs, mask)
    assert left.token_value is not None and inputs.token_value is not None
    assert (
        left.token_value.tolist() == inputs.token_value[mask].tolist()
        and left.token_ref_logp is None
    )
    assert left.trajectory_return.tolist() == inputs.trajectory_return.tolist()
    for mean in (token_mean, trajectory_mean, sequence_mean, step_mean, turn_mean):
        assert mean(left).sum() == pytest.approx(float(mask.any()), abs=1e-12)
