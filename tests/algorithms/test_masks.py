"""Masks and what can be said against a trajectory."""

import dataclasses

import numpy as np
import pytest
from hand_made import batch_shapes, evidence_of, grown_groups, make_call, make_trajectory, make_turn, told
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.advantages import group_normalized
from agentrl_jax.algorithms.aggregation import row_mean, step_mean, token_mean, trajectory_mean, turn_mean
from agentrl_jax.algorithms.keying import batch_of_turn, group_of_turn
from agentrl_jax.algorithms.masks import (
    AfterMarker,
    Agents,
    AllOf,
    ByAttempt,
    CallsNamed,
    Deviations,
    LikelihoodBand,
    Quantiles,
    Sources,
    TopEntropyTurns,
    Without,
    restricted,
    without_overlong,
    without_void,
)
from agentrl_jax.algorithms.quality import Repetitive, Unreadable, overlong, writes_nothing_useful
from agentrl_jax.errors import UserError
from agentrl_jax.messages import assistant
from agentrl_jax.trajectories import Group, Trajectory


def says(*texts: str, **fields: object) -> Trajectory:
    """Two tokens a turn."""
    turns = (dataclasses.replace(make_turn([make_call([1], [2, 3])]), action=assistant(text)) for text in texts)
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
        ("```python\n   \n```", True),  # nothing in it
        ("```\nprint(1)\n```", True),  # of no language
        ("```json\n{}\n```", True),
        (r"\boxed{4", True),
        ("boxed{4}", True),
        (r"\boxed{\frac{1}{2}", True),
    ],
)
def test_void_turns_hold_neither_code_nor_an_answer(text: str, void: bool):
    assert writes_nothing_useful(text) == void


def test_a_void_trajectory_counts_but_is_not_trained():
    good, void = says(r"\boxed{1}"), says("hm", r"\boxed{1}")
    group = Group("a", (dataclasses.replace(good, turns=(dataclasses.replace(good.turns[0], reward=1.0),)), good, void))
    evidence = evidence_of([group])
    assert without_void(evidence).tolist() == [True] * 4 + [False] * 4
    assert without_void(evidence_of(told([group], void=lambda turn, place: False))).all()
    with_it, without = group_normalized(evidence), group_normalized(evidence_of([Group("a", group.trajectories[:2])]))
    assert abs(with_it[0] - without[0]) > 0.1


def test_what_a_limit_cut_is_not_trained():
    cut = [says("a", stop_reason=reason) for reason in ("terminated", "truncated", "turns", "tokens", "context", "error")]
    assert [overlong(t) for t in cut] == [False, False, True, True, True, False]
    assert without_overlong(evidence_of([Group("a", tuple(cut))])).tolist() == [True] * 4 + [False] * 6 + [True] * 2


def test_repetition_and_what_cannot_be_read():
    assert Repetitive(2, 0.4)(says("a b a b a b")) and not Repetitive(2, 0.7)(says("a b a b a b"))
    assert not Repetitive(2, 0.0)(says("a b c d")) and not Repetitive(5, 0.0)(says("a a"))
    assert Unreadable(0.3)(says("fine", "a��b")) and not Unreadable(0.5)(says("a��b"))
    assert Unreadable(0.0)(says("\x00")) and not Unreadable(0.0)(says("tab\tand\nnewline", ""))
    both = evidence_of([Group("a", (says("a a a a"), says("fine")))])
    assert Without((Repetitive(1, 0.5), Unreadable(0.1)))(both).tolist() == [False, False, True, True]


@given(shapes=batch_shapes, share=st.sampled_from([0.2, 0.5, 0.8, 1.0]), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_turns_of_most_entropy_are_kept(shapes: list, share: float, seed: int):
    evidence = evidence_of(grown_groups(shapes), "token_entropy", seed=seed)
    assert evidence.token_entropy is not None
    for key in (group_of_turn, batch_of_turn):
        kept = TopEntropyTurns(share, key)(evidence)
        for k in set(key(evidence).tolist()):
            turns = [r for r in range(len(evidence.turns)) if key(evidence)[r] == k]
            means = {r: float(np.mean(evidence.token_entropy[evidence.token_turn == r])) for r in turns}
            best = sorted(turns, key=lambda r: -means[r])[: max(1, int(share * len(turns) + 1e-9))]
            for r in turns:
                assert set(kept[evidence.token_turn == r].tolist()) == {r in best}
    assert TopEntropyTurns(1.0)(evidence).all()


def test_masks_by_name_source_agent_and_marker():
    calls = [make_call([1], [2, 3]), dataclasses.replace(make_call([1], [7, 4, 7, 5]), source="patch"), make_call([1], [6])]
    turns = [dataclasses.replace(make_turn(calls[:2]), info={"calls": ["thought", "answer"]}), make_turn(calls[2:])]
    evidence = evidence_of([Group("a", (make_trajectory(*turns), make_trajectory(make_turn([make_call([1], [8])])).replace(agent="b")))])
    assert CallsNamed(("answer",))(evidence).tolist() == [False] * 2 + [True] * 4 + [False] * 2
    assert CallsNamed(("thought", "action"))(evidence).tolist() == [True] * 2 + [False] * 4 + [True] * 2
    assert Sources()(evidence).tolist() == [True] * 2 + [False] * 4 + [True] * 2
    assert Agents(("policy",))(evidence).tolist() == [True] * 7 + [False]
    assert AfterMarker((7,))(evidence).tolist() == [True, True, False, False, False, True, True, True]
    assert AfterMarker((4, 7))(evidence).tolist() == [True, True, False, False, False, True, True, True]
    assert AllOf((Sources(), Agents(("b",))))(evidence).tolist() == [False] * 7 + [True]
    assert AllOf(())(evidence).all()
    assert ByAttempt((0.1, 0.01))(evidence).tolist() == [0.1] * 6 + [0.01, 0.1]
    with pytest.raises(UserError, match="has 2 calls but its info names 1"):
        CallsNamed(("answer",))(evidence_of([Group("a", (make_trajectory(dataclasses.replace(turns[0], info={"calls": ["x"]})),))]))
    with pytest.raises(ValueError, match="counting tokens"):
        Sources()(restricted(evidence, Sources()(evidence)))


def test_the_middle_of_the_likelihoods_is_kept():
    values = np.arange(11.0)
    assert np.flatnonzero(Quantiles(0.2, 0.8)(values)).tolist() == list(range(2, 9))
    assert (Quantiles(0.2, 0.8)(-values) == Quantiles(0.2, 0.8)(values)).all()
    assert np.flatnonzero(Deviations(1.0)(values)).tolist() == list(range(2, 9))
    assert Quantiles(0.2, 0.8)(np.zeros(0)).shape == Deviations(1.0)(np.zeros(0)).shape == (0,)
    turns = [make_turn([make_call([1], [2, 3], logp=[-x - 0.5, -x + 0.5])]) for x in values]
    evidence = evidence_of([Group("a", (make_trajectory(*turns),))])
    assert LikelihoodBand(Quantiles(0.2, 0.8))(evidence)[::2].tolist() == [2 <= x <= 8 for x in values]
    scored = dataclasses.replace(evidence, token_logp=np.repeat(-(values[::-1] ** 2), 2))
    assert LikelihoodBand(Quantiles(0.0, 0.5))(scored)[::2].tolist() == [x >= 5 for x in values]


@given(shapes=batch_shapes, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_means_over_what_a_mask_leaves_sum_to_one(shapes: list, seed: int):
    evidence = evidence_of(grown_groups(shapes), "token_value")
    mask = np.random.default_rng(seed).random(len(evidence.token_row)) < 0.5
    left = restricted(evidence, mask)
    assert left.token_value is not None and evidence.token_value is not None
    assert left.token_value.tolist() == evidence.token_value[mask].tolist() and left.token_ref_logp is None
    assert left.trajectory_return.tolist() == evidence.trajectory_return.tolist()
    for mean in (token_mean, trajectory_mean, row_mean, step_mean, turn_mean):
        assert mean(left).sum() == pytest.approx(float(mask.any()), abs=1e-12)
