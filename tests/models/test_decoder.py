"""The decoder's forward pass over whole rows, against a loop in numpy, and its invariances."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.models.decoder import DecoderConfig, parameter_count
from agentrl_jax.models.decoder_architecture import SAVED_ACTIVATIONS
from agentrl_jax.policy import PolicyInputs

VOCAB = 17
CONFIGS = {
    "plain": DecoderConfig(layers=2, width=16, hidden=24, heads=2, kv_heads=2, head_size=8),
    "full": DecoderConfig(
        layers=3,
        width=16,
        hidden=24,
        heads=4,
        kv_heads=2,
        head_size=6,
        qk_norm=True,
        qkv_bias=True,
        tied_head=False,
    ),
}
PLAIN, FULL = CONFIGS.values()


def make(config):
    """A decoder and random parameters, none of them at its initial constant."""
    decoder = config.build(VOCAB)
    random = np.random.default_rng(0)
    shapes = jax.eval_shape(decoder.init, jax.random.key(0))
    return decoder, jax.tree.map(
        lambda x: jnp.asarray(random.normal(0.1, 0.3, x.shape), jnp.float32), shapes
    )


@functools.cache
def model(name):
    """`make`, and the jitted logits of a batch, compiled once for all tests."""
    decoder, params = make(CONFIGS[name])
    return decoder, params, jax.jit(lambda inputs: logits(decoder, params, inputs))


def packed():
    """Two rows: documents of 4, 3 and 2 tokens with a padded end, and one of 9 tokens with another
    padded end.
    """
    segments = np.array([[1] * 4 + [2] * 3 + [3] * 2 + [0], [1] * 9 + [0]], np.int32)
    positions = np.array([[0, 1, 2, 3, 0, 1, 2, 0, 1, 0], [*range(9), 0]], np.int32)
    tokens = np.random.default_rng(1).integers(0, VOCAB, segments.shape, np.int32)
    return PolicyInputs(tokens=tokens, positions=positions, segment_ids=segments)


def logits(decoder, params, inputs):
    return decoder.logits(params, decoder.apply(params, inputs).hidden)


def reference(config, params, tokens):
    """Logits of one document, one token, one head, one key at a time, in float64."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)

    def norm(x, scale):
        return x / np.sqrt(np.mean(x * x) + config.norm_eps) * scale

    def turn(x, position):
        half = config.head_size // 2
        y = np.empty_like(x)
        for i in range(half):
            angle = position / config.rope.theta ** (2 * i / config.head_size)
            rotated = complex(x[i], x[i + half]) * np.exp(1j * angle)
            y[i], y[i + half] = rotated.real, rotated.imag
        return y

    stream = [p["embedding"][t] for t in tokens]
    for index in range(config.layers):
        layer = jax.tree.map(lambda x, i=index: x[i], p["layers"])
        weights = layer["attention"]
        heads = {"query": [], "key": [], "value": []}
        for position, x in enumerate(stream):
            y = norm(x, layer["attention_norm"]["scale"])
            for name, history in heads.items():
                projected = np.tensordot(y, weights[name], 1) + weights.get(f"{name}_bias", 0.0)
                if config.qk_norm and name != "value":
                    projected = np.stack(
                        [norm(h, weights[f"{name}_norm"]["scale"]) for h in projected]
                    )
                history.append(
                    projected
                    if name == "value"
                    else np.stack([turn(h, position) for h in projected])
                )
        for t in range(len(stream)):
            attended = np.zeros((config.heads, config.head_size))
            for head in range(config.heads):
                shared = head * config.kv_heads // config.heads
                scores = [
                    heads["query"][t][head] @ heads["key"][s][shared] / config.head_size**0.5
                    for s in range(t + 1)
                ]
                chances = np.exp(scores) / np.sum(np.exp(scores))
                attended[head] = sum(c * heads["value"][s][shared] for s, c in enumerate(chances))
            x = stream[t] + np.einsum("nh,nhd->d", attended, weights["out"])
            y = norm(x, layer["mlp_norm"]["scale"])
            gate = y @ layer["mlp"]["gate"]
            stream[t] = (
                x + (gate / (1 + np.exp(-gate)) * (y @ layer["mlp"]["up"])) @ layer["mlp"]["down"]
            )
    head = p["embedding" if config.tied_head else "head"]
    return np.stack([head @ norm(x, p["final_norm"]["scale"]) for x in stream])


@pytest.mark.parametrize("name", CONFIGS)
def test_forward_agrees_with_a_loop_in_numpy(name):
    decoder, params, forward = model(name)
    inputs = packed()
    got = np.asarray(forward(inputs))
    for row in range(2):
        for segment in range(1, 4):
            in_segment = inputs.segment_ids[row] == segment
            if in_segment.any():
                want = reference(decoder.config, params, inputs.tokens[row][in_segment])
                np.testing.assert_allclose(got[row][in_segment], want, atol=1e-5, rtol=1e-5)


def test_packing_equals_separate_rows():
    _, _, forward = model("full")
    inputs = packed()
    together = forward(inputs)
    spans = [(0, 0, 4), (0, 4, 3), (0, 7, 2), (1, 0, 9)]
    apart = PolicyInputs(
        tokens=np.zeros((4, 10), np.int32),
        positions=np.zeros((4, 10), np.int32),
        segment_ids=np.zeros((4, 10), np.int32),
    )
    for i, (row, start, length) in enumerate(spans):
        for field in ("tokens", "positions", "segment_ids"):
            getattr(apart, field)[i, :length] = getattr(inputs, field)[row, start : start + length]
    alone = forward(apart)
    for i, (row, start, length) in enumerate(spans):
        np.testing.assert_allclose(
            together[row, start : start + length], alone[i, :length], atol=1e-5
        )


def test_a_token_sees_itself_and_what_came_before_and_nothing_else():
    decoder, params, _ = model("plain")
    inputs = packed()
    row = PolicyInputs(
        tokens=inputs.tokens[:1], positions=inputs.positions[:1], segment_ids=inputs.segment_ids[:1]
    )

    def hidden(embeddings):
        given_inputs = dataclasses.replace(
            row, embeddings=embeddings, embedding_mask=jnp.ones((1, 10), bool)
        )
        return decoder.apply(params, given_inputs).hidden[0].sum(-1)

    jacobian = jax.jit(jax.jacrev(hidden))(jax.random.normal(jax.random.key(2), (1, 10, 16)))
    seen = np.abs(jacobian[:, 0]).max(-1) > 0
    before = inputs.positions[0][:, None] >= inputs.positions[0][None]
    np.testing.assert_array_equal(
        seen, before & (inputs.segment_ids[0][:, None] == inputs.segment_ids[0][None])
    )


@functools.cache
def gradient(saved=SAVED_ACTIVATIONS):
    """A loss over the real tokens of a batch and its gradient, jitted."""
    decoder, params = make(dataclasses.replace(PLAIN, saved_activations=saved))

    def loss(params, inputs):
        return jnp.sum(
            jnp.where(
                inputs.segment_ids[:, :, None] > 0, jnp.sin(logits(decoder, params, inputs)), 0.0
            )
        )

    return jax.jit(lambda inputs: jax.value_and_grad(loss)(params, inputs))


def test_padding_tokens_change_neither_loss_nor_gradient():
    inputs = packed()
    pad = inputs.segment_ids == 0
    other = dataclasses.replace(
        inputs,
        tokens=np.where(pad, 5, inputs.tokens),
        positions=np.where(pad, 1_000_000, inputs.positions).astype(np.int32),
    )
    want, got = gradient()(inputs), gradient()(other)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(got))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), want, got)


def test_a_row_of_padding_alone_is_finite():
    _, _, forward = model("full")
    assert np.isfinite(forward(jax.tree.map(np.zeros_like, packed()))).all()


@pytest.mark.slow
@pytest.mark.parametrize("saved", [(), ("gate",), SAVED_ACTIVATIONS])
def test_saved_activations_change_no_gradient(saved):
    want, got = gradient(None)(packed()), gradient(saved)(packed())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), want, got)


def test_given_embeddings_replace_those_of_masked_tokens():
    _, params, forward = model("plain")
    inputs = packed()
    other = np.random.default_rng(4).integers(0, VOCAB, (2, 10), np.int32)
    embedded = np.random.default_rng(5).random((2, 10)) < 0.5
    given_inputs = dataclasses.replace(
        inputs, embeddings=params["embedding"][other], embedding_mask=jnp.asarray(embedded)
    )
    mixed = dataclasses.replace(inputs, tokens=np.where(embedded, other, inputs.tokens))
    np.testing.assert_allclose(forward(given_inputs), forward(mixed), atol=1e-6)


def test_jit_equals_no_jit():
    decoder, params, forward = model("full")
    inputs = packed()
    np.testing.assert_allclose(forward(inputs), logits(decoder, params, inputs), atol=1e-5)


def test_bfloat16_stays_near_float32():
    _, params, forward = model("full")
    narrow = dataclasses.replace(FULL, compute_dtype="bfloat16").build(VOCAB)
    inputs = packed()
    hidden = jax.jit(lambda x: narrow.apply(params, x).hidden)(inputs)
    y = narrow.logits(params, hidden)
    assert hidden.dtype == jnp.bfloat16 and y.dtype == jnp.float32
    want = forward(inputs)
    assert float(jnp.abs(y - want).mean()) < 0.02 * float(want.std())
    grads = jax.eval_shape(jax.grad(lambda p: jnp.sum(logits(narrow, p, inputs))), params)
    assert {g.dtype for g in jax.tree.leaves(grads)} == {jnp.dtype("float32")}


def test_parameter_count_is_the_formula():
    config = (
        FULL  # per layer: two norms, q and out, k and v, three biases, q/k norms, three of SwiGLU
    )
    layer = 2 * 16 + 2 * 16 * 4 * 6 + 2 * 16 * 2 * 6 + (4 + 2 + 2) * 6 + 2 * 6 + 3 * 16 * 24
    assert parameter_count(config, VOCAB) == 2 * VOCAB * 16 + 3 * layer + 16
    assert 0.9e6 < parameter_count(DecoderConfig(), 64) < 1.1e6


@pytest.mark.parametrize("name", CONFIGS)
def test_every_weight_has_an_axis_name_per_dimension(name):
    decoder = CONFIGS[name].build(VOCAB)
    shapes = jax.eval_shape(decoder.init, jax.random.key(0))
    axes = decoder.axes()

    def check(shape, names):
        assert len(shape.shape) == len(names) and all(isinstance(n, str) for n in names)

    jax.tree.map(check, shapes, axes, is_leaf=lambda x: isinstance(x, tuple))
    assert axes["layers"]["attention"]["query"] == ("layers", "embed", "heads", "head_size")
    assert axes["layers"]["mlp"]["down"] == ("layers", "hidden", "embed")
    assert axes["embedding"] == ("vocab", "embed")


def test_init_is_random_across_layers_and_of_the_asked_dtype():
    config = dataclasses.replace(PLAIN, width=64, param_dtype="bfloat16")
    params = config.build(VOCAB).init(jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(params)) == parameter_count(config, VOCAB)
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}
    query = np.asarray(params["layers"]["attention"]["query"], np.float32)
    assert np.abs(query[0] - query[1]).mean() > 0.01
    np.testing.assert_allclose(query.std(), config.width**-0.5, rtol=0.05)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"heads": 4, "kv_heads": 3}, r"heads \(4\) must be a multiple of its kv_heads \(3\)"),
        ({"head_size": 7}, "head_size must be even"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"norm_eps": 0.0}, "norm_eps must be positive"),
        ({"compute_dtype": "float8"}, "compute_dtype must be one of float32"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(change, sentence):
    with pytest.raises(UserError, match=sentence):
        dataclasses.replace(PLAIN, **change).build(VOCAB)


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(UserError, match="at least 1 token"):
        PLAIN.build(0)


def test_positions_of_several_axes_need_a_rope_with_sections():
    decoder, params, _ = model("plain")
    inputs = dataclasses.replace(packed(), rope_positions=np.zeros((3, 2, 10), np.int32))
    with pytest.raises(UserError, match="need a decoder whose rope has sections"):
        decoder.apply(params, inputs)


def test_a_decoder_keeps_the_config_it_was_built_from():
    config = dataclasses.replace(PLAIN)
    decoder = config.build(VOCAB)
    config.layers = 7
    assert decoder.config.layers == 2
