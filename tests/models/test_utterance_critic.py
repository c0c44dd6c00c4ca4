"""ArCHer's critic: Q and V worked out by hand, shapes at RoBERTa's size, target networks, and
equality on a mesh.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.encoder_folders import write_folder
from support.fixtures import VOCAB_SIZE, device_mesh, tiny_policy

from agentrl_jax.distributed.sharding import batch_sharding, weight_shardings
from agentrl_jax.models.encoder import EncoderConfig, TextEncoder, bert_pooling
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.hf.encoders import load_encoder
from agentrl_jax.models.tokenizers import ByteTokenizer
from agentrl_jax.models.utterance_critic import (
    FreshEncoderConfig,
    PolicyTrunkEncoder,
    PolicyTrunkEncoderConfig,
    PretrainedEncoderConfig,
    UtteranceCriticConfig,
)
from agentrl_jax.models.weight_averaging import polyak
from agentrl_jax.policy import Encoder, PolicyInputs

ENCODER = EncoderConfig(
    layers=1, width=8, hidden=12, heads=2, positions=16, pooling=bert_pooling
).build(VOCAB_SIZE)
random = np.random.default_rng(0)
MASK = np.arange(6)[None] < np.array([6, 4, 1, 3])[:, None]
TEXTS, UTTERANCES = (random.integers(2, VOCAB_SIZE, (4, 6), np.int32) for _ in range(2))


@functools.cache
def critic():
    model = UtteranceCriticConfig(head=HeadConfig(layers=2, hidden=10, scale=1.0, bias=0.3)).build(
        ENCODER
    )
    return model, parameters(model, 0)


def parameters(model, seed):
    """Random parameters, without compiling `init`."""
    numbers = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.map(
        lambda x: jnp.asarray(numbers.normal(0.1, 0.3, x.shape), jnp.float32), shapes
    )


@functools.partial(jax.jit, static_argnums=0)
def predictions(critic, params, texts=TEXTS, utterances=UTTERANCES, mask=MASK):
    state, action = critic.encode(params, texts, mask), critic.encode(params, utterances, mask)
    return critic.q(params, state, action), critic.v(params, state)


@pytest.mark.slow
def test_q_and_v_are_perceptrons_of_the_encoded_texts():
    model, params = critic()
    q, v = predictions(model, params)
    assert q.shape == v.shape == (2, 4)
    encode = jax.jit(ENCODER.apply)
    state, action = (
        encode(params["encoder"], TEXTS, MASK),
        encode(params["encoder"], UTTERANCES, MASK),
    )
    for got, name, x in ((q, "q", np.concatenate([state, action], 1)), (v, "v", np.asarray(state))):
        for k in range(2):
            w = {key: np.asarray(value[k]) for key, value in params[name].items()}
            y = np.maximum(x @ w["kernel_0"] + w["bias_0"], 0)
            y = np.maximum(y @ w["kernel_1"] + w["bias_1"], 0) @ w["kernel"] + w["bias"]
            np.testing.assert_allclose(got[k], y[:, 0], atol=1e-5)


def test_init_gives_every_head_weights_of_its_own():
    model = UtteranceCriticConfig().build(PolicyTrunkEncoder(tiny_policy(layers=1)))
    heads = jax.jit(lambda key: {name: model.init(key)[name]["kernel_1"] for name in ("q", "v")})(
        jax.random.key(0)
    )
    kernels = [heads[name][k] for name in ("q", "v") for k in range(2)]
    assert all(np.abs(a - b).max() > 0 for i, a in enumerate(kernels) for b in kernels[:i])


def test_the_defaults_are_archers_shapes():
    model = UtteranceCriticConfig().build(EncoderConfig().build(50265))
    shapes = jax.tree.map(lambda x: x.shape, jax.eval_shape(model.init, jax.random.key(0)))
    assert [shapes["q"][name] for name in ("kernel_0", "kernel_1", "kernel")] == [
        (2, 1536, 768),
        (2, 768, 768),
        (2, 768, 1),
    ]
    assert [shapes["v"][name] for name in ("kernel_0", "kernel_1", "kernel")] == [
        (2, 768, 768),
        (2, 768, 768),
        (2, 768, 1),
    ]
    assert shapes["encoder"]["layers"]["query"] == (12, 768, 12, 64)


def temporal_difference(model, params, target, texts, utterances, mask):
    """`sum (Q_k(s, a) - (1 + 0.95 V_k(s')))^2 + sum V_k(s)^2`, with the utterances as next texts;
    and the predicted Q and V.
    """
    q, v = predictions(model, params, texts, utterances, mask)
    td_target = 1.0 + 0.95 * model.v(target, model.encode(target, utterances, mask))
    return jnp.sum((q - td_target) ** 2) + jnp.sum(v**2), (q, v)


@pytest.mark.slow
def test_losses_train_encoder_and_heads_and_never_the_target():
    model, params = critic()
    other = parameters(model, 1)

    @functools.partial(jax.jit, static_argnums=2)
    def gradient(params, target, tau):
        def loss(params, target):
            return temporal_difference(
                model, params, polyak(target, params, tau), TEXTS, UTTERANCES, MASK
            )[0]

        return jax.grad(loss, argnums=(0, 1))(params, target)

    fresh, into_target = gradient(params, other, 0.0)
    assert max(np.abs(x).max() for x in jax.tree.leaves(into_target)) == 0
    assert all(
        np.abs(fresh[name]["kernel_0"][k]).max() > 0 for name in ("q", "v") for k in range(2)
    )
    assert np.abs(fresh["encoder"]["layers"]["query"]).max() > 0

    td_target = jax.jit(
        lambda: 1.0 + 0.95 * model.v(other, model.encode(other, UTTERANCES, MASK))
    )()

    def constant(params):  # the same target as a constant
        q, v = predictions(model, params)
        return jnp.sum((q - td_target) ** 2) + jnp.sum(v**2)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
        fresh,
        jax.jit(jax.grad(constant))(params),
    )


@pytest.mark.slow
def test_a_sharded_critic_equals_one_device_and_every_device_holds_its_share():
    model, params = critic()
    mesh = device_mesh(data=2, fsdp=2, tensor=2)
    shardings = weight_shardings(mesh, model.axes(), params)
    spread, target = (jax.device_put(x, shardings) for x in (params, parameters(model, 1)))
    run = jax.jit(jax.grad(functools.partial(temporal_difference, model), has_aux=True))
    batch = (TEXTS, UTTERANCES, MASK)
    alone = run(params, jax.device_get(target), *batch)
    got = run(spread, target, *jax.device_put(batch, batch_sharding(mesh)))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), alone, jax.device_get(got)
    )
    assert {x.data.shape for x in spread["q"]["kernel_0"].addressable_shards} == {(2, 8, 5)}
    assert {x.data.shape for x in spread["encoder"]["layers"]["up"].addressable_shards} == {
        (1, 4, 6)
    }
    averaged = jax.jit(polyak)(target, spread, 0.1)
    assert all(
        jax.tree.leaves(
            jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), averaged, shardings)
        )
    )


def test_a_policys_trunk_encodes_a_text_as_the_state_of_its_last_token():
    policy = tiny_policy(layers=1)
    trunk = PolicyTrunkEncoder(policy)
    params = parameters(trunk, 0)
    encode = jax.jit(trunk.apply)
    wide, real = np.pad(TEXTS, ((0, 0), (0, 3))), np.pad(MASK, ((0, 0), (0, 3)))
    got = encode(params, wide, real)
    positions, hidden_of = (
        np.arange(9, dtype=np.int32)[None],
        jax.jit(lambda p, x: policy.apply(p, x).hidden),
    )
    for row in range(4):  # causal: tokens after the last one have no effect
        alone = PolicyInputs(
            tokens=wide[row : row + 1], positions=positions, segment_ids=np.ones((1, 9), np.int32)
        )
        np.testing.assert_allclose(
            got[row], hidden_of(params, alone)[0, MASK[row].sum() - 1], atol=1e-5
        )
    shifted = encode(params, np.roll(wide, 3, axis=1), np.roll(real, 3, axis=1))
    np.testing.assert_allclose(shifted, got, atol=1e-5)
    assert isinstance(trunk, Encoder)


def test_a_critic_on_a_policys_trunk():
    model = UtteranceCriticConfig().build(PolicyTrunkEncoder(tiny_policy(layers=1)))
    shapes = jax.eval_shape(lambda key: predictions(model, model.init(key)), jax.random.key(0))
    assert [x.shape for x in shapes] == [(2, 4), (2, 4)]


def test_what_a_critics_encoder_starts_as(tmp_path):
    policy = tiny_policy(layers=1)
    params = parameters(policy, 0)
    trunk = PolicyTrunkEncoderConfig()
    assert (
        trunk.initial_params(trunk.build(policy), params, jax.random.key(0), device_mesh())
        is params
        and trunk.build_tokenizer() is None
    )
    fresh = FreshEncoderConfig(ENCODER.config, ByteTokenizer())
    built = fresh.build(policy)
    assert isinstance(built, TextEncoder) and built.vocab_size == len(fresh.build_tokenizer()) > 256
    folder = write_folder(tmp_path / "roberta")
    pretrained = PretrainedEncoderConfig(str(folder))
    weights = pretrained.initial_params(
        pretrained.build(policy), params, jax.random.key(0), device_mesh(fsdp=2)
    )
    jax.tree.map(np.testing.assert_array_equal, weights, load_encoder(folder)[1])
    assert weights["embedding"].sharding.mesh.shape["fsdp"] == 2
