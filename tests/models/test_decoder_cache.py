"""Decoding over a KV cache against the full forward pass; rows are independent of each other."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.rope import (
    Llama3Rope,
    Rope,
    YarnRope,
    rotary_cos_sin,
    tabulated_rotary_cos_sin,
)
from agentrl_jax.policy import PolicyInputs

VOCAB = 17
SIZE = 24
LENGTHS = np.array([13, 9, 1, 12])  # tokens of each row
STOPS = (5, 6, 7, 12, 13)  # ends of the chunks of each row
CONFIGS = {
    "plain": DecoderConfig(layers=2, width=16, hidden=24, heads=2, kv_heads=2, head_size=8),
    "full": DecoderConfig(
        layers=2,
        width=16,
        hidden=24,
        heads=4,
        kv_heads=2,
        head_size=6,
        qk_norm=True,
        qkv_bias=True,
        tied_head=False,
    ),
    "one key head": DecoderConfig(layers=1, width=16, hidden=24, heads=3, kv_heads=1, head_size=8),
}
EVERY = pytest.mark.parametrize("name", CONFIGS)


@functools.cache
def model(name):
    """A decoder with random parameters, stacked and unstacked."""
    decoder = CONFIGS[name].build(VOCAB)
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(decoder.init, jax.random.key(0))
    params = jax.tree.map(
        lambda x: jnp.asarray(random.normal(0.1, 0.3, x.shape), jnp.float32), shapes
    )
    return decoder, params, decoder.unstack(params)


@functools.cache
def forward(name):
    """Jitted: logits and the cache after a chunk."""
    decoder, _, unstacked = model(name)

    def run(inputs, cache):
        output = decoder.apply(unstacked, inputs, cache)
        return decoder.logits(unstacked, output.hidden), output.cache

    return jax.jit(run)


@pytest.mark.parametrize("rope", [Rope(), Rope(theta=1e6), YarnRope(factor=4.0), Llama3Rope()])
def test_rotations_from_a_table_are_those_of_the_learner(rope):
    positions = jnp.asarray(np.random.default_rng(0).integers(0, 32_768, (3, 50)), jnp.int32)
    tabulated = jax.jit(lambda positions: tabulated_rotary_cos_sin(32_768, positions, 64, rope))(
        positions
    )
    for table, computed in zip(tabulated, rotary_cos_sin(positions, 64, rope)):
        np.testing.assert_allclose(table, computed, atol=2e-7)


@EVERY
def test_the_transposed_head_gives_the_same_logits(name):
    decoder, params, unstacked = model(name)
    hidden = jnp.asarray(
        np.random.default_rng(2).normal(size=(3, 2, decoder.config.width)), jnp.float32
    )
    assert unstacked["readout"].shape == (decoder.config.width, VOCAB) and "head" not in unstacked
    np.testing.assert_allclose(
        decoder.logits(unstacked, hidden), decoder.logits(params, hidden), rtol=1e-5, atol=1e-5
    )


def tokens_of_rows():
    return np.random.default_rng(1).integers(0, VOCAB, (len(LENGTHS), LENGTHS.max()), np.int32)


def chunk(tokens, start, stop, lengths=LENGTHS):
    """Columns start..stop of the rows; a token past its row's end is padding with a position that
    must not be written.
    """
    positions = np.broadcast_to(np.arange(start, stop, dtype=np.int32), (len(tokens), stop - start))
    real = positions < lengths[:, None]
    return PolicyInputs(
        tokens=tokens[:, start:stop],
        positions=np.where(real, positions, 0),
        segment_ids=real.astype(np.int32),
    )


def decode(name, tokens, stops, cache=None, lengths=LENGTHS, attention_length=0):
    """Logits [B, T, V] of `tokens`, processed in chunks that end at `stops`."""
    decoder, _, _ = model(name)
    cache = decoder.init_cache(len(tokens), SIZE) if cache is None else cache
    cache = dataclasses.replace(cache, attention_length=attention_length)
    parts = []
    for start, stop in zip([0, *stops], stops):
        y, cache = forward(name)(chunk(tokens, start, stop, lengths), cache)
        parts.append(np.asarray(y))
    return np.concatenate(parts, axis=1), cache


@pytest.mark.slow
@EVERY
def test_odd_chunks_and_single_tokens_equal_the_full_forward(name):
    decoder, params, _ = model(name)
    tokens = tokens_of_rows()
    full_chunk = chunk(tokens, 0, 13)
    want = jax.jit(lambda x: decoder.logits(params, decoder.apply(params, x).hidden))(full_chunk)
    got, _ = decode(name, tokens, STOPS)
    real = np.asarray(full_chunk.segment_ids) > 0
    np.testing.assert_allclose(got[real], want[real], atol=1e-5, rtol=1e-5)
    assert np.isfinite(got).all()


def test_a_donated_loop_of_single_tokens_equals_chunks():
    decoder, _, unstacked = model("full")
    tokens = tokens_of_rows()
    want, _ = decode("full", tokens, STOPS)

    @functools.partial(jax.jit, donate_argnums=0)
    def loop(cache, y, tokens):
        def body(state):
            t, cache, y = state
            token = jax.lax.dynamic_slice_in_dim(tokens, t, 1, axis=1)
            position = jnp.full_like(token, t)
            output = decoder.apply(
                unstacked,
                PolicyInputs(tokens=token, positions=position, segment_ids=jnp.ones_like(token)),
                cache,
            )
            return (
                t + 1,
                output.cache,
                y.at[:, t].set(decoder.logits(unstacked, output.hidden)[:, 0]),
            )

        return jax.lax.while_loop(
            lambda state: state[0] < tokens.shape[1], body, (jnp.int32(0), cache, y)
        )

    _, _, got = loop(decoder.init_cache(4, SIZE), jnp.zeros((4, 13, VOCAB)), jnp.asarray(tokens))
    real = np.arange(13) < LENGTHS[:, None]
    np.testing.assert_allclose(got[real], want[real], atol=1e-5)


def test_padding_is_written_nowhere():
    tokens = tokens_of_rows()
    decoder, _, _ = model("plain")
    marked = jax.tree.map(lambda x: x + 7.0, decoder.init_cache(4, SIZE))
    _, cache = decode("plain", tokens, STOPS, cache=marked)
    for array in (*cache.keys, *cache.values):
        written = (np.asarray(array) != 7.0).all(axis=(1, 3))
        np.testing.assert_array_equal(written, np.arange(SIZE) < LENGTHS[:, None])


def test_stale_slots_are_never_read():
    tokens = tokens_of_rows()
    decoder, _, _ = model("full")
    stale = jax.tree.map(lambda x: x + 1e6, decoder.init_cache(4, SIZE))
    fresh, _ = decode("full", tokens, STOPS)
    reused, _ = decode("full", tokens, STOPS, cache=stale)
    real = np.arange(13) < LENGTHS[:, None]
    np.testing.assert_array_equal(fresh[real], reused[real])


def test_the_attention_length_changes_no_result():
    tokens = tokens_of_rows()
    want, _ = decode("full", tokens, STOPS)
    got, cache = decode("full", tokens, STOPS, attention_length=15)
    assert cache.attention_length == 15 and cache.keys[0].shape == (4, 2, SIZE, 6)
    real = np.arange(13) < LENGTHS[:, None]
    np.testing.assert_allclose(got[real], want[real], atol=1e-5)


@EVERY
def test_a_row_is_bitwise_independent_of_its_neighbors_and_its_index(name):
    tokens = tokens_of_rows()
    want, _ = decode(name, tokens, STOPS)
    others = np.random.default_rng(2).integers(0, VOCAB, tokens.shape, np.int32)
    others[0] = tokens[0]
    got, _ = decode(name, others, STOPS, lengths=np.array([13, 3, 8, 1]))
    np.testing.assert_array_equal(got[0], want[0])
    order = np.array([2, 0, 3, 1])
    moved, _ = decode(name, tokens[order], STOPS, lengths=LENGTHS[order])
    np.testing.assert_array_equal(moved, want[order])


def test_a_step_copies_no_cache():
    decoder, _, unstacked = model("full")
    cache = dataclasses.replace(decoder.init_cache(8, 4096), attention_length=16)
    single_token = jnp.zeros((8, 1), jnp.int32)
    step = jax.jit(lambda x, cache: decoder.apply(unstacked, x, cache), donate_argnums=1)
    memory = (
        step.lower(
            PolicyInputs(tokens=single_token, positions=single_token, segment_ids=single_token + 1),
            cache,
        )
        .compile()
        .memory_analysis()
    )
    size = sum(x.nbytes for x in jax.tree.leaves(cache))
    assert memory is not None
    assert memory.alias_size_in_bytes >= size
    assert memory.temp_size_in_bytes < size / 20


def test_the_cache_has_the_compute_dtype():
    cache = (
        dataclasses.replace(CONFIGS["full"], compute_dtype="bfloat16").build(VOCAB).init_cache(3, 5)
    )
    assert len(cache.keys) == len(cache.values) == 2 and cache.attention_length == 0
    assert {(x.shape, x.dtype) for x in jax.tree.leaves(cache)} == {
        ((3, 2, 5, 6), jnp.dtype("bfloat16"))
    }
