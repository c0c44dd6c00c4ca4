"""Values of critics at chosen tokens, before tokens, and at the ends of turns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models.critic_readout import (
    TokenBaseline,
    chosen_values_and_logsumexp,
    last_positions,
    shift_states,
    values_at_positions,
)
from agentrl_jax.models.heads import CriticEnsemble, HeadConfig

WIDTH, VOCAB = 4, 6
RANDOM = HeadConfig(scale=1.0, bias=0.5)
HIDDEN = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7, WIDTH)), jnp.float32)
TOKENS = np.random.default_rng(1).integers(0, VOCAB, (2, 7), np.int32)
VALUE = RANDOM.build(WIDTH)


@functools.cache
def twins():
    critic = CriticEnsemble(RANDOM.build(WIDTH, VOCAB))
    return critic, critic.init(jax.random.key(0))


def test_q_of_chosen_tokens_worked_by_hand():
    head = HeadConfig(layers=0).build(1, actions=3)
    params = {"kernel": jnp.log(jnp.array([[1.0, 2.0, 5.0]])), "bias": jnp.zeros(3)}
    q, total = chosen_values_and_logsumexp(head, params, jnp.ones((1, 2, 1)), jnp.array([[1, 2]]))
    np.testing.assert_allclose(q, np.log([[2.0, 5.0]]), rtol=1e-6)
    np.testing.assert_allclose(total, np.log([[8.0, 8.0]]), rtol=1e-6)
    np.testing.assert_allclose(
        total - q, -np.log([[0.25, 0.625]]), rtol=1e-6
    )  # cross-entropy of the softmax of Q


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 48, 80, 10**9])  # chunks of 1, 2, 3 and all 7 positions
def test_chunked_q_equals_dense_q_with_its_gradients(at_once):
    critic, params = twins()

    def dense(params, hidden):
        values = critic.apply(params, hidden)
        picked = jnp.take_along_axis(
            values, jnp.broadcast_to(TOKENS[..., None], (2, 2, 7, 1)), axis=-1
        )[..., 0]
        return picked, jnp.log(jnp.sum(jnp.exp(values), axis=-1))

    def loss(read, params, hidden):
        q, total = read(params, hidden)
        return jnp.sum(jnp.sin(q)) + jnp.sum(total**2), (q, total)

    def chunked(params, hidden):
        return chosen_values_and_logsumexp(critic, params, hidden, TOKENS, at_once)

    want, got = (
        jax.jit(jax.grad(functools.partial(loss, f), argnums=(0, 1), has_aux=True))(params, HIDDEN)
        for f in (dense, chunked)
    )
    assert got[1][0].shape == (2, 2, 7)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), want, got)


def test_q_over_the_vocabulary_never_exists_for_all_tokens():
    rows, length, vocab = 2, 64, 4096
    head = HeadConfig(layers=0, scale=1.0).build(WIDTH, vocab)
    hidden, tokens = jnp.zeros((rows, length, WIDTH)), jnp.zeros((rows, length), jnp.int32)

    def memory(at_once):
        def loss(params, hidden):
            q, total = chosen_values_and_logsumexp(head, params, hidden, tokens, at_once)
            return jnp.sum(total - q)

        program = (
            jax.jit(jax.grad(loss, argnums=(0, 1)))
            .lower(head.init(jax.random.key(0)), hidden)
            .compile()
        )
        analysis = program.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    everything = 4 * rows * length * vocab
    assert memory(10**9) >= everything
    assert memory(rows * 4 * vocab) < everything / 4


def test_the_last_position_of_each_id():
    ids = np.array([[1, 1, 2, 2, 2, 0], [0, 3, 0, 1, 0, 0]])
    np.testing.assert_array_equal(last_positions(ids, 3), [[1, 4, -1], [3, -1, 1]])


@pytest.mark.slow
def test_values_at_the_ends_of_turns_are_those_of_the_whole_row():
    for critic in (VALUE, CriticEnsemble(VALUE)):
        params = critic.init(jax.random.key(1))
        every = critic.apply(params, HIDDEN)
        got = values_at_positions(critic, params, HIDDEN, np.array([[0, 6, -1], [2, -1, 2]]))
        want = np.stack([every[..., 0, 0], every[..., 0, 6], 0 * every[..., 0, 0]], -1)
        np.testing.assert_allclose(got[..., 0, :], want, atol=1e-6)
        np.testing.assert_allclose(
            got[..., 1, :],
            np.stack([every[..., 1, 2], 0 * every[..., 1, 2], every[..., 1, 2]], -1),
            atol=1e-6,
        )
    linear = HeadConfig(layers=0, scale=1.0).build(WIDTH)
    params = linear.init(jax.random.key(1))
    gradient = jax.grad(
        lambda h: jnp.sum(values_at_positions(linear, params, h, np.array([[3, -1], [5, -1]])))
    )(HIDDEN)
    touched = np.abs(gradient).max(-1) > 0
    np.testing.assert_array_equal(touched, [np.arange(7) == 3, np.arange(7) == 5])


def test_a_reward_model_reads_the_last_real_token_of_each_segment():
    head = HeadConfig(layers=0).build(1)
    params = {"kernel": jnp.array([[2.0]]), "bias": jnp.array([1.0])}
    hidden = jnp.arange(6.0).reshape(1, 6, 1)
    scores = values_at_positions(
        head, params, hidden, last_positions(np.array([[1, 1, 1, 2, 2, 0]]), 3)
    )
    np.testing.assert_array_equal(scores, [[2 * 2 + 1, 2 * 4 + 1, 0]])


@pytest.mark.slow
def test_a_baseline_is_read_before_its_token_and_never_trains_the_trunk():
    baseline = TokenBaseline(VALUE)
    params = baseline.init(jax.random.key(2))
    values = VALUE.apply(params, HIDDEN)
    start = VALUE.apply(params, jnp.zeros((2, 1, WIDTH)))
    got = baseline.apply(params, HIDDEN)
    np.testing.assert_allclose(got, jnp.concatenate([start, values[:, :-1]], axis=1), atol=1e-6)
    head_gradient, trunk = jax.grad(
        lambda p, h: jnp.sum(baseline.apply(p, h) ** 2), argnums=(0, 1)
    )(params, HIDDEN)
    assert np.abs(trunk).max() == 0 and all(
        np.abs(x).max() > 0 for x in jax.tree.leaves(head_gradient)
    )
    np.testing.assert_array_equal(
        shift_states(jnp.arange(3.0).reshape(1, 3, 1))[0, :, 0], [0, 0, 1]
    )
