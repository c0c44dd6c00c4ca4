"""Reward models: the preference loss from the first differing position on, and the best of several
answers.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax.algorithms.pairwise.bradley_terry import (
    best_of_n_index,
    bradley_terry,
    expected_best_of_k,
    preference_loss,
    score_at_end,
    yes_probability,
)


def looped(chosen: list, rejected: list, a: list, b: list, m: int, n: int) -> float:
    """The mean over positions from the first that differs, in its token or in whether one of the
    two has ended, to the longer end.
    """
    end = max(m, n)
    first = next((t for t in range(end) if a[t] != b[t] or (t < m) != (t < n)), None)
    if first is None:
        return 0.0
    return float(np.mean([np.log1p(np.exp(-(chosen[t] - rejected[t]))) for t in range(first, end)]))


@given(
    a=st.lists(st.integers(0, 1), min_size=6, max_size=6),
    b=st.lists(st.integers(0, 1), min_size=6, max_size=6),
    lengths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_the_preference_loss_matches_a_loop(a: list, b: list, lengths: tuple, seed: int):
    values = np.random.default_rng(seed).normal(size=(2, 6)).astype(np.float32)
    m, n = lengths
    loss_values = preference_loss(*(jnp.asarray(x)[None] for x in (*values, a, b, m, n)))
    chosen, rejected = values.tolist()
    assert float(loss_values[0]) == pytest.approx(looped(chosen, rejected, a, b, m, n), abs=1e-5)


def test_only_positions_from_the_first_difference_on_have_a_gradient():
    chosen, rejected = jnp.asarray([[0.5, 1.0, 2.0, 9.0]]), jnp.asarray([[0.1, 1.0, 1.0, -9.0]])
    tokens, others = jnp.asarray([[5, 6, 7, 0]]), jnp.asarray([[5, 8, 7, 0]])
    three = jnp.asarray([3])
    slope = jax.grad(lambda x: jnp.sum(preference_loss(x, rejected, tokens, others, three, three)))(
        chosen
    )
    # -sigmoid(-(chosen - rejected)) / 2 at the two positions from the first difference on
    assert slope[0].tolist() == pytest.approx([0, -0.25, -0.5 / (1 + np.e), 0], abs=1e-6)
    same = preference_loss(chosen, rejected, tokens, tokens, three, three)
    assert same.tolist() == [0.0]
    wild = jax.grad(lambda x: jnp.sum(preference_loss(x, rejected, tokens, others, three, three)))(
        chosen * 1e30
    )
    assert np.isfinite(wild).all()


def test_preferences_scores_and_the_best_of_n():
    assert float(bradley_terry(jnp.float32(1.0), jnp.float32(1.0))) == pytest.approx(
        np.log(2), abs=1e-6
    )
    assert score_at_end(
        jnp.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), jnp.asarray([2, 3])
    ).tolist() == [2.0, 6.0]
    assert float(yes_probability(jnp.log(0.3), jnp.log(0.1))) == pytest.approx(0.75, abs=1e-6)
    assert best_of_n_index([0.1, 0.7, 0.7]) == 1
    for wrong in ([], [0.1, float("nan")]):
        with pytest.raises(ValueError, match="cannot be chosen"):
            best_of_n_index(wrong)


@given(
    scores=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    seed=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_the_best_of_k_is_the_mean_over_all_subsets(
    scores: list[int], seed: int, data: st.DataObject
):
    outcomes = np.random.default_rng(seed).random(len(scores))
    k = data.draw(st.integers(1, len(scores)))

    def outcome(draw: tuple[int, ...]) -> float:
        """Ties are broken uniformly at random among all answers with that score."""
        top = max(scores[i] for i in draw)
        return float(np.mean([o for s, o in zip(scores, outcomes) if s == top]))

    draws = list(itertools.combinations(range(len(scores)), k))
    assert expected_best_of_k(scores, outcomes, k) == pytest.approx(
        np.mean([outcome(d) for d in draws]), abs=1e-9
    )


def test_a_perfect_verifier_is_pass_at_k_and_an_uninformative_one_is_the_mean():
    outcomes = [1.0, 0.0, 0.0, 0.0]
    assert [expected_best_of_k(outcomes, outcomes, k) for k in (1, 2, 4)] == pytest.approx(
        [0.25, 0.5, 1.0]
    )
    assert [expected_best_of_k([3, 3, 3, 3], outcomes, k) for k in (1, 2, 4)] == pytest.approx(
        [0.25] * 3
    )
    assert expected_best_of_k([0, 1, 1, 1], outcomes, 4) == 0.0
    with pytest.raises(ValueError, match="best of 5"):
        expected_best_of_k(outcomes, outcomes, 5)
