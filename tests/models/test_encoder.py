"""The text encoder against a loop in numpy, with padding, and on a mesh."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import device_mesh

from agentrl_jax.distributed.sharding import batch_sharding, weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models.encoder import (
    EncoderConfig,
    bert_pooling,
    first_token_pooling,
    max_pooling,
    mean_pooling,
    token_positions,
)
from agentrl_jax.policy import Encoder

VOCAB = 32
CONFIG = EncoderConfig(layers=2, width=16, hidden=24, heads=4, positions=16)
POOLINGS = [first_token_pooling, bert_pooling, mean_pooling, max_pooling]
erf = np.vectorize(math.erf)


@functools.cache
def make(pooling=first_token_pooling, **changes):
    """An encoder, random parameters (none at its initial constant), and its jitted forward pass."""
    encoder = dataclasses.replace(CONFIG, pooling=pooling, **changes).build(VOCAB)
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(encoder.init, jax.random.key(0))
    params = jax.tree.map(
        lambda x: jnp.asarray(random.normal(0.1, 0.3, x.shape), jnp.float32), shapes
    )
    return encoder, params, jax.jit(encoder.apply)


def batch():
    """Rows of 7, 4 and 1 tokens, padded on the right."""
    mask = np.arange(7)[None] < np.array([7, 4, 1])[:, None]
    tokens = np.random.default_rng(1).integers(2, VOCAB, mask.shape, np.int32)
    return np.where(mask, tokens, 1).astype(np.int32), mask


def reference(config, params, tokens):
    """Hidden states of one text without padding, one head and one query at a time, in float64."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def norm(x, weights):
        return (x - x.mean()) / np.sqrt(x.var() + config.norm_eps) * weights["scale"] + weights[
            "bias"
        ]

    positions = range(config.position_of_first, config.position_of_first + len(tokens))
    stream = [
        norm(p["embedding"][t] + p["positions"][i] + p["token_types"][0], p["embedding_norm"])
        for t, i in zip(tokens, positions)
    ]
    for index in range(config.layers):
        w = jax.tree.map(lambda x, i=index: x[i], p["layers"])
        query, key, value = (
            [np.tensordot(x, w[name], 1) + w[f"{name}_bias"] for x in stream]
            for name in ("query", "key", "value")
        )
        for t, x in enumerate(list(stream)):
            attended = np.zeros_like(query[t])
            for head in range(config.heads):
                chances = np.exp(
                    [query[t][head] @ k[head] / (config.width / config.heads) ** 0.5 for k in key]
                )
                attended[head] = sum(c * v[head] for c, v in zip(chances / chances.sum(), value))
            x = norm(x + np.tensordot(attended, w["out"], 2) + w["out_bias"], w["attention_norm"])
            inner = x @ w["up"] + w["up_bias"]
            inner = inner * (1 + erf(inner / 2**0.5)) / 2
            stream[t] = norm(x + inner @ w["down"] + w["down_bias"], w["mlp_norm"])
    return p, np.stack(stream)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_forward_agrees_with_a_loop_in_numpy(pooling):
    _, params, forward = make(pooling)
    tokens, mask = batch()
    got = forward(params, tokens, mask)
    for row in range(3):
        p, states = reference(CONFIG, params, tokens[row][mask[row]])
        if pooling in (mean_pooling, max_pooling):
            want = states.mean(0) if pooling is mean_pooling else states.max(0)
        else:
            want = (
                np.tanh(states[0] @ p["pooler"] + p["pooler_bias"])
                if pooling is bert_pooling
                else states[0]
            )
        np.testing.assert_allclose(got[row], want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_anywhere_with_any_tokens_changes_no_vector(pooling):
    _, params, forward = make(pooling)
    tokens, mask = batch()
    want = forward(params, tokens, mask)
    slots = {"right": range(7), "left": range(5, 12), "spread": [0, 2, 3, 5, 8, 9, 11]}
    for where in slots.values():
        wide, real = np.full((3, 12), VOCAB + 99, np.int32), np.zeros((3, 12), bool)
        wide[:, where], real[:, where] = np.where(mask, tokens, -7), mask
        np.testing.assert_allclose(forward(params, wide, real), want, atol=1e-5)


@pytest.mark.slow
def test_padding_tokens_get_no_gradient_and_a_row_of_padding_is_finite():
    encoder, params, _ = make(mean_pooling)
    tokens, mask = batch()
    mask[2] = False
    gradient = jax.jit(jax.grad(lambda p, t: jnp.sum(jnp.sin(encoder.apply(p, t, mask)[:2]))))
    got, other = gradient(params, tokens), gradient(params, np.where(mask, tokens, 9))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(got))
    jax.tree.map(np.testing.assert_array_equal, got, other)
    unread = np.setdiff1d(np.arange(VOCAB), tokens[:2][mask[:2]])
    assert np.abs(got["embedding"][unread]).max() == 0 and np.abs(got["positions"][9:]).max() == 0
    assert np.abs(got["embedding"][tokens[0]]).min() > 0
    assert np.isfinite(encoder.apply(params, tokens, mask)).all()


@pytest.mark.slow
def test_every_token_sees_every_other():
    encoder, params, _ = make()
    tokens, mask = batch()

    def last_row_of(table):
        return encoder.apply({**params, "embedding": table}, tokens[:1], mask[:1]).sum()

    assert np.abs(jax.grad(last_row_of)(params["embedding"])[tokens[0]]).max(-1).min() > 0


def test_positions_count_real_tokens_from_the_first_position():
    mask = jnp.array([[False, True, True, False, True], [True, True, False, False, False]])
    np.testing.assert_array_equal(token_positions(mask, 2), [[0, 2, 3, 0, 4], [2, 3, 0, 0, 0]])
    np.testing.assert_array_equal(token_positions(mask, 0), [[0, 0, 1, 0, 2], [0, 1, 0, 0, 0]])


@pytest.mark.slow
def test_remat_and_jit_change_no_value_and_no_gradient():
    tokens, mask = batch()
    plain, params, forward = make(bert_pooling)
    thin = make(bert_pooling, remat=True)[0]

    def gradient(encoder):
        return jax.jit(jax.grad(lambda p: jnp.sum(jnp.sin(encoder.apply(p, tokens, mask)))))(params)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5),
        gradient(plain),
        gradient(thin),
    )
    np.testing.assert_allclose(
        forward(params, tokens, mask), plain.apply(params, tokens, mask), atol=1e-5
    )


@pytest.mark.slow
def test_bfloat16_stays_near_float32():
    _, params, forward = make(mean_pooling)
    narrow = make(mean_pooling, compute_dtype="bfloat16")[0]
    tokens, mask = batch()
    got, want = narrow.apply(params, tokens, mask), forward(params, tokens, mask)
    assert got.dtype == jnp.bfloat16
    assert float(jnp.abs(got.astype(jnp.float32) - want).mean()) < 0.02 * float(want.std())
    gradient = jax.eval_shape(
        jax.grad(lambda p: jnp.sum(narrow.apply(p, tokens, mask)).astype(jnp.float32)), params
    )
    assert {x.dtype for x in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}


@pytest.mark.slow
def test_a_sharded_encoder_equals_one_device_and_every_device_holds_its_share():
    encoder, params, forward = make(bert_pooling)
    tokens, mask = (np.concatenate([x, x[:1]]) for x in batch())
    want = forward(params, tokens, mask)
    mesh = device_mesh(data=2, fsdp=2, tensor=2)
    shardings = weight_shardings(mesh, encoder.axes(), params)
    spread = jax.device_put(params, shardings)

    def loss(params, tokens, mask):
        pooled = encoder.apply(params, tokens, mask)
        return jnp.sum(jnp.sin(pooled)), pooled

    run = jax.jit(jax.grad(loss, has_aux=True))
    alone, _ = run(params, tokens, mask)
    gradient, got = run(spread, *jax.device_put((tokens, mask), batch_sharding(mesh)))
    np.testing.assert_allclose(got, want, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), alone, jax.device_get(gradient)
    )
    for name, share in {
        "query": (2, 8, 2, 4),
        "out": (2, 2, 4, 8),
        "up": (2, 8, 12),
        "down": (2, 12, 8),
    }.items():
        assert {x.data.shape for x in spread["layers"][name].addressable_shards} == {share}
    assert {x.data.shape for x in spread["embedding"].addressable_shards} == {(16, 8)}
    assert {x.data.shape for x in spread["pooler"].addressable_shards} == {(8, 8)}
    assert len(spread["embedding"].addressable_shards) == 8


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_weight_has_an_axis_name_per_dimension(pooling):
    encoder = make(pooling)[0]
    shapes = jax.eval_shape(encoder.init, jax.random.key(0))

    def check(shape, names):
        assert len(shape.shape) == len(names) and all(isinstance(n, str) for n in names)

    jax.tree.map(check, shapes, encoder.axes(), is_leaf=lambda x: isinstance(x, tuple))
    assert ("pooler" in shapes) == (pooling is bert_pooling)
    assert encoder.axes()["layers"]["query"] == ("layers", "embed", "heads", "head_size")
    assert isinstance(encoder, Encoder)


def test_init_is_random_across_layers_and_of_the_asked_dtype():
    encoder = dataclasses.replace(CONFIG, width=64, param_dtype="bfloat16").build(VOCAB)
    params = encoder.init(jax.random.key(0))
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    query = np.asarray(params["layers"]["query"], np.float32)
    np.testing.assert_allclose(query.std(), 0.02, rtol=0.05)
    assert (
        np.abs(query[0] - query[1]).mean() > 0.01
        and np.abs(params["layers"]["query_bias"]).max() == 0
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"heads": 3}, r"width \(16\) must be a multiple of its heads \(3\)"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"positions": 2}, r"positions \(2\) must exceed that of the first token \(2\)"),
        ({"first_position": -1}, "at least 0"),
        ({"norm_eps": 0.0}, "norm_eps must be positive"),
        ({"compute_dtype": "float8"}, "compute_dtype must be one of float32"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(change, sentence):
    with pytest.raises(UserError, match=sentence):
        dataclasses.replace(CONFIG, **change).build(VOCAB)


def test_texts_longer_than_the_position_table_are_refused():
    encoder, params, _ = make()
    encoder.apply(params, np.ones((1, 14), np.int32), np.ones((1, 14), bool))
    with pytest.raises(UserError, match="at most 14 tokens, not 15"):
        encoder.apply(params, np.ones((1, 15), np.int32), np.ones((1, 15), bool))
    with pytest.raises(UserError, match="at least 1 token"):
        CONFIG.build(0)


def test_an_encoder_keeps_the_config_it_was_built_from():
    config = dataclasses.replace(CONFIG)
    encoder = config.build(VOCAB)
    config.layers = 7
    assert encoder.config.layers == 2
