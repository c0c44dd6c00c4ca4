"""Quantized weights: the formats against hand-worked numbers, and adapters over a quantized base
against the same base dequantized.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from support.fixtures import device_mesh, on_first_device, random_trajectory

from agentrl_jax import models
from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.learner.checkpoint import PhaseCheckpointer, load_params
from agentrl_jax.learner.learner import Learner, fetch_metrics
from agentrl_jax.learner.packing import pack
from agentrl_jax.learner.sequences import sequences_of
from agentrl_jax.models.adapters import PROJECTIONS, LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.moe import ExpertsConfig
from agentrl_jax.models.quantized import NF4_LEVELS, QuantizedWeight, int8, is_quantized, nf4
from agentrl_jax.policy import PolicyInputs

VOCAB = 13
BASE = DecoderConfig(layers=2, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, qkv_bias=True)
SPARSE = dataclasses.replace(
    BASE, tied_head=False, experts=ExpertsConfig(4, 2, 12, dense_layers=(1,))
)
FORMATS = pytest.mark.parametrize("quantize", [nf4, int8], ids=["nf4", "int8"])
FORMATS_SLOW = pytest.mark.parametrize(
    "quantize", [nf4, pytest.param(int8, marks=pytest.mark.slow)], ids=["nf4", "int8"]
)
HALF_THE_LARGEST_GAP = (NF4_LEVELS[1] - NF4_LEVELS[0]) / 2


def inputs() -> PolicyInputs:
    tokens = np.random.default_rng(1).integers(0, VOCAB, (2, 9), np.int32)
    return PolicyInputs(
        tokens=tokens,
        positions=np.broadcast_to(np.arange(9, dtype=np.int32), (2, 9)),
        segment_ids=np.ones((2, 9), np.int32),
    )


def normal(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(0), shape)


@functools.cache
def policy_of(quantize: Any = nf4, base: str = "dense") -> Any:
    if base == "sparse":
        return LoraConfig(
            SPARSE,
            rank=2,
            alpha=4.0,
            targets=(*PROJECTIONS, "router", "embedding", "head"),
            quantize=quantize,
        ).build(VOCAB)
    return LoraConfig(BASE, rank=3, alpha=6.0, quantize=quantize).build(VOCAB)


def random_tree(shapes: Any, seed: int, scale: float) -> Any:
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(random.normal(0.0, scale, x.shape), x.dtype), shapes)


def params_of(policy: Any, seed: int = 0) -> Any:
    """Random weights, and adapters that are not zero."""
    base = random_tree(jax.eval_shape(policy.base.init, jax.random.key(0)), seed, 0.25)
    adapters = random_tree(jax.eval_shape(policy.init_adapters, jax.random.key(0)), seed + 1, 0.1)
    return {"base": policy.quantize_base(base), "adapters": adapters}


@functools.cache
def quantized_policy(quantize: Any = nf4, base: str = "dense") -> tuple[Any, Any]:
    policy = policy_of(quantize, base)
    return policy, params_of(policy)


def dense(tree: Any) -> Any:
    return jax.tree.map(
        lambda x: x.dequantize() if isinstance(x, QuantizedWeight) else x,
        tree,
        is_leaf=is_quantized,
    )


def plain(policy: Any) -> Any:
    """The same policy over the dequantized base."""
    return dataclasses.replace(policy, config=dataclasses.replace(policy.config, quantize=None))


def as_quantized(x: Any) -> QuantizedWeight:
    assert isinstance(x, QuantizedWeight)
    return x


def logits(policy: Any, params: Any) -> jax.Array:
    return jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs()).hidden))(
        params
    )


def test_the_sixteen_levels_are_quantiles_of_a_normal_distribution():
    # the offset is the mean of half a step of 16 levels and half a step of 15, as published
    tail = 1 - 0.9677083
    assert tail == pytest.approx((1 / 32 + 1 / 30) / 2, abs=1e-7)
    above = scipy.stats.norm.ppf(np.linspace(0.5, 1 - tail, 9))
    below = scipy.stats.norm.ppf(np.linspace(tail, 0.5, 8))
    np.testing.assert_allclose(
        NF4_LEVELS, np.concatenate([below[:-1] / -below[0], above / above[-1]]), atol=1e-7
    )
    assert (
        len(NF4_LEVELS) == 16 and NF4_LEVELS[0] == -1 and NF4_LEVELS[7] == 0 and NF4_LEVELS[15] == 1
    )


def test_nf4_takes_the_nearest_level_of_each_block():
    # Divided by the absmax, 4 and 8: the codes of -1, 0.5, -0.25, 0.02 and of 0.75, 1, -0.65, 0.
    # Two codes share a byte, the first in its lower half.
    first, second = [-4.0, 2.0, -1.0, 0.08], [6.0, 8.0, -5.2, 0.0]
    got = as_quantized(nf4(jnp.asarray([first * 16 + second * 16])))
    np.testing.assert_array_equal(got.scales, [[4.0, 8.0]])
    codes = [0 + 16 * 12, 4 + 16 * 7] * 16 + [14 + 16 * 15, 1 + 16 * 7] * 16
    np.testing.assert_array_equal(got.codes, np.asarray([codes], np.uint8))
    want = [-4.0, 4 * 0.44070983, 4 * -0.28444138, 0.0] * 16 + [
        8 * 0.72295684,
        8.0,
        8 * -0.6961928,
        0.0,
    ] * 16
    np.testing.assert_allclose(got.dequantize(), [want], rtol=1e-6)


def test_int8_takes_the_nearest_multiple_of_a_127th_of_the_largest():
    got = as_quantized(int8(jnp.asarray([[-254.0, 3.0, 2.9, 100.0] * 16])))
    np.testing.assert_array_equal(got.scales, [[254.0]])
    np.testing.assert_array_equal(got.codes, np.asarray([[-127, 2, 1, 50] * 16], np.int8))
    np.testing.assert_allclose(got.dequantize(), [[-254.0, 4.0, 2.0, 100.0] * 16], rtol=1e-6)


@pytest.mark.parametrize(
    ("quantize", "bound"), [(nf4, HALF_THE_LARGEST_GAP), (int8, 1 / 254)], ids=["nf4", "int8"]
)
def test_errors_are_within_half_a_step_of_each_blocks_largest(quantize, bound: float):
    x = normal(5, 3, 256) * jnp.geomspace(1e-6, 1e6, 15).reshape(5, 3, 1)
    error = np.abs(np.asarray(as_quantized(quantize(x)).dequantize() - x, np.float64)).reshape(
        5, 3, 4, 64
    )
    largest = np.abs(np.asarray(x, np.float64)).reshape(5, 3, 4, 64).max(-1, keepdims=True)
    assert 0.5 * bound < (error / largest).max() <= bound * (1 + 1e-5)


@FORMATS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_can_be_represented_comes_back_exactly(quantize, dtype: str):
    once = as_quantized(quantize(normal(4, 128).astype(dtype)))
    assert once.dequantize().dtype == dtype
    twice = as_quantized(quantize(once.dequantize()))
    jax.tree.map(np.testing.assert_array_equal, twice, once)
    np.testing.assert_array_equal(as_quantized(quantize(jnp.zeros((2, 64)))).dequantize(), 0)


@pytest.mark.slow
@FORMATS
@pytest.mark.parametrize(
    ("last", "blocks"), [(128, 2), (64, 1), (96, 2), (24, 1), (80, 2), (134, 67), (2, 1)]
)
def test_a_block_is_the_longest_that_divides_the_axis(quantize, last: int, blocks: int):
    x = normal(3, last)
    got = as_quantized(quantize(x))
    assert got.scales.shape == (3, blocks) and got.dequantize().shape == x.shape
    assert (
        got.codes.shape == (3, last // 2 if quantize is nf4 else last)
        and got.codes.dtype.itemsize == 1
    )


@pytest.mark.slow
def test_a_fresh_base_is_quantized():
    policy = LoraConfig(dataclasses.replace(BASE, layers=1), quantize=nf4).build(VOCAB)
    got, want = policy.init(jax.random.key(0)), policy.base.init(jax.random.key(0))
    jax.tree.map(
        np.testing.assert_array_equal,
        got["base"]["layers"]["mlp"]["up"],
        nf4(want["layers"]["mlp"]["up"]),
    )
    np.testing.assert_array_equal(got["base"]["embedding"], want["embedding"])


def test_axes_that_no_block_divides_stay_dense():
    assert isinstance(nf4(normal(3, 15)), jax.Array) and isinstance(int8(normal(3, 67)), jax.Array)
    assert as_quantized(int8(normal(3, 15))).scales.shape == (3, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("quantize", "base"), [(int8, "dense"), (nf4, "sparse")])
def test_adapters_over_a_quantized_base_are_those_over_its_dense_weights(quantize, base: str):
    policy, params = quantized_policy(quantize, base)
    want = {"base": dense(params["base"]), "adapters": params["adapters"]}
    np.testing.assert_allclose(logits(policy, params), logits(plain(policy), want), atol=1e-5)

    def gradient(policy: Any, params: Any) -> Any:
        def loss(adapters: Any) -> jax.Array:
            both = {"base": params["base"], "adapters": adapters}
            return jnp.mean(policy.logits(both, policy.apply(both, inputs()).hidden) ** 2)

        return jax.jit(jax.grad(loss))(params["adapters"])

    got, expected = gradient(policy, params), gradient(plain(policy), want)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), got, expected)
    assert min(float(jnp.abs(x).max()) for x in jax.tree.leaves(got)) > 1e-5


def test_matrices_of_layers_alone_are_quantized():
    params = jax.eval_shape(policy_of(nf4, "sparse").init, jax.random.key(0))
    gradients = {
        path[-1].key
        for path, x in jax.tree.leaves_with_path(params["base"], is_leaf=is_quantized)
        if is_quantized(x)
    }
    assert gradients == set(PROJECTIONS)
    assert as_quantized(params["base"]["layers"]["mlp"]["down"]).codes.shape == (
        1,
        4,
        12,
        8,
    )  # [layers, experts, hidden, embed / 2]
    assert as_quantized(params["base"]["layers_1"]["attention"]["query"]).codes.shape == (
        1,
        16,
        4,
        4,
    )
    with pytest.raises(UserError, match="whose `saved_activations` is not None"):
        LoraConfig(dataclasses.replace(BASE, saved_activations=None), quantize=nf4).build(VOCAB)


@pytest.mark.slow
@FORMATS
def test_shapes_axes_and_what_is_trained_agree(quantize):
    policy = policy_of(quantize, "sparse")
    params, axes = jax.eval_shape(policy.init, jax.random.key(0)), policy.axes()
    jax.tree.map(
        lambda x, names, _: [len(x.shape) == len(names)].index(True),
        params,
        axes,
        policy.trainable(),
    )
    assert axes["base"]["layers"]["mlp"]["gate"].scales == ("layers", "experts", "embed", "hidden")
    assert not any(jax.tree.leaves(policy.trainable()["base"])) and all(
        jax.tree.leaves(policy.trainable()["adapters"])
    )


def test_only_arrays_are_waited_for(monkeypatch: pytest.MonkeyPatch):
    """JAX prints the whole program for the error of a tracer that is asked to wait."""
    policy, waited = policy_of(nf4), []
    monkeypatch.setattr(jax, "block_until_ready", waited.append)
    policy.axes()
    policy.trainable()
    assert waited == []
    policy.init(jax.random.key(0))
    assert len(waited) == 7  # the matrices of attention and MLP, stacked over the layers


@pytest.mark.slow
@FORMATS_SLOW
def test_merging_gives_dense_weights(quantize):
    policy, params = quantized_policy(quantize)
    merged = policy.merge(params)
    assert jax.tree.structure(merged) == jax.tree.structure(policy.base.trainable())
    np.testing.assert_allclose(logits(policy.base, merged), logits(policy, params), atol=1e-5)
    untouched = dataclasses.replace(
        policy, config=dataclasses.replace(policy.config, targets=("out",))
    )
    merged = untouched.merge({"base": params["base"], "adapters": {}})
    np.testing.assert_array_equal(
        merged["layers"]["mlp"]["up"], params["base"]["layers"]["mlp"]["up"].dequantize()
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "merge"),
    [("dense", True), ("dense", False), pytest.param("sparse", False, marks=pytest.mark.slow)],
)
def test_sampling_sees_the_policy_that_is_trained(base: str, merge: bool):
    policy, params = quantized_policy(nf4, base)
    policy = dataclasses.replace(
        policy, config=dataclasses.replace(policy.config, merge_for_sampling=merge)
    )
    unstacked, rows = policy.unstack(params), inputs()
    assert any(map(is_quantized, jax.tree.leaves(unstacked["base"], is_leaf=is_quantized))) == (
        not merge
    )

    @jax.jit
    def step(cache, part, unstacked):
        output = policy.apply(unstacked, part, cache)
        return output.cache, policy.logits(unstacked, output.hidden)

    cache, parts = policy.init_cache(2, 12), []
    for start in (0, 3, 6):
        cache, part = step(cache, jax.tree.map(lambda x, a=start: x[:, a : a + 3], rows), unstacked)
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), logits(policy, params), atol=1e-5)


@pytest.mark.slow
@FORMATS_SLOW
def test_dense_weights_exist_a_layer_at_a_time(quantize):
    deep = DecoderConfig(layers=12, width=256, hidden=1024, heads=8, kv_heads=4, head_size=32)
    policy = LoraConfig(deep, rank=2, quantize=quantize).build(VOCAB)
    params = jax.eval_shape(policy.init, jax.random.key(0))
    total_bytes = sum(
        x.size * 4 for x in jax.tree.leaves(jax.eval_shape(policy.base.init, jax.random.key(0)))
    )

    def loss(adapters: Any, base: Any) -> jax.Array:
        both = {"base": base, "adapters": adapters}
        return jnp.mean(policy.logits(both, policy.apply(both, inputs()).hidden))

    memory = (
        jax.jit(jax.value_and_grad(loss))
        .lower(params["adapters"], params["base"])
        .compile()
        .memory_analysis()
    )
    assert memory is not None
    assert memory.temp_size_in_bytes < 0.25 * total_bytes
    assert memory.argument_size_in_bytes < (0.16 if quantize is nf4 else 0.29) * total_bytes


def batch() -> BehaviorCloningBatch:
    rng = np.random.default_rng(0)
    rows = [
        sequences_of(random_trajectory([(2, 2, False, 0.0), (1, 3, False, 0.0)], rng, VOCAB))[0]
        for _ in range(4)
    ]
    layout = pack(rows, 12, 4)
    mask = layout.to_batch(np.zeros((layout.num_bins, 12), np.float32)).action_mask
    return BehaviorCloningBatch(batch=layout.to_batch(np.asarray(mask / mask.sum(), np.float32)))


def learner_on(mesh: Any, quantize: Any, base: str = "dense") -> Learner:
    return Learner(
        policy_of(quantize, base),
        optax.sgd(0.1, momentum=0.9),
        lambda logp, entropy, batch: (-logp, {"logp": logp}),
        mesh,
    )


@functools.cache
def updated(mesh: Any, quantize: Any, base: str = "dense") -> tuple[Any, dict[str, float]]:
    learner = learner_on(mesh, quantize, base)
    state, metrics = learner.update(
        learner.init(jax.random.key(0), quantized_policy(quantize, base)[1]), [batch()]
    )
    return state, fetch_metrics(metrics)


@pytest.mark.slow
def test_an_update_changes_adapters_alone():
    params = quantized_policy()[1]
    state, metrics = updated(device_mesh(), nf4)
    jax.tree.map(np.testing.assert_array_equal, state.params["base"], params["base"])
    assert jax.tree.structure(state.params) == jax.tree.structure(params)
    changed = jax.tree.map(
        lambda x, y: float(jnp.abs(x - y).max()), state.params["adapters"], params["adapters"]
    )
    assert min(jax.tree.leaves(changed)) > 1e-5 and metrics["gradient_norm"] > 1e-3
    assert len(jax.tree.leaves(state.opt_state)) == len(jax.tree.leaves(params["adapters"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantize", "base", "sizes"),
    [
        (int8, "dense", {"fsdp": 2, "tensor": 2}),
        (nf4, "sparse", {"fsdp": 2, "expert": 2, "tensor": 2}),
    ],
)
def test_a_split_base_gives_what_one_device_gives(quantize, base: str, sizes: dict[str, int]):
    (want, single), (got, several) = (
        updated(device_mesh(), quantize, base),
        updated(device_mesh(**sizes), quantize, base),
    )
    assert several == pytest.approx(single, rel=1e-6, abs=1e-5)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5),
        jax.device_get(got.params),
        jax.device_get(want.params),
    )


@pytest.mark.slow
@FORMATS
def test_codes_are_split_as_weights_and_the_scales_of_a_single_block_are_not(quantize):
    learner = learner_on(device_mesh(fsdp=2, tensor=2), quantize)
    state = learner.init(jax.random.key(0), quantized_policy(quantize)[1])
    gate = state.params["base"]["layers"]["mlp"]["gate"]
    parts = [x.addressable_shards[0].data.shape for x in (gate.codes, gate.scales)]
    # [layers, embed / fsdp, hidden / tensor]
    assert parts == [(2, 8, 6 if quantize is nf4 else 12), (2, 8, 1)]


@pytest.mark.slow
def test_a_saved_state_is_restored_exactly(tmp_path: Path):
    state = updated(device_mesh(), nf4)[0]
    keeper = PhaseCheckpointer(tmp_path)
    keeper.save(1, state, {"step": 1})
    fresh = learner_on(device_mesh(fsdp=2), nf4).init(jax.random.key(5), params_of(policy_of(), 5))
    again = keeper.restore(fresh)[0]
    keeper.close()
    assert jax.tree.structure(again.params) == jax.tree.structure(state.params)
    jax.tree.map(
        np.testing.assert_array_equal, jax.device_get(again.params), jax.device_get(state.params)
    )
    like = jax.eval_shape(policy_of().init, jax.random.key(0))
    loaded = load_params(tmp_path, like, on_first_device(like))
    jax.tree.map(np.testing.assert_array_equal, loaded, jax.device_get(state.params))


@pytest.mark.slow
def test_a_folders_model_is_quantized_as_it_is_loaded(tmp_path: Path):
    wide = dataclasses.replace(BASE, width=32, hidden=256, qkv_bias=False, qk_norm=True)
    decoder = wide.build(VOCAB)
    models.save(
        tmp_path, decoder, random_tree(jax.eval_shape(decoder.init, jax.random.key(0)), 3, 0.25)
    )
    config, mesh = (
        LoraConfig(PretrainedDecoder(str(tmp_path)), rank=2, quantize=nf4),
        device_mesh(fsdp=2, tensor=2),
    )
    policy = config.build(VOCAB)
    params = config.initial_params(policy, jax.random.key(0), mesh)
    shardings = weight_shardings(
        mesh, policy.axes(), jax.eval_shape(policy.init, jax.random.key(0))
    )
    for x, sharding in zip(
        jax.tree.leaves(params["base"]), jax.tree.leaves(shardings["base"]), strict=True
    ):
        assert x.sharding.is_equivalent_to(sharding, x.ndim)
    got, want = (
        dense(params["base"])["layers"]["mlp"]["gate"],
        models.load(tmp_path)[1]["layers"]["mlp"]["gate"],
    )
    np.testing.assert_allclose(got, want, atol=float(jnp.abs(want).max()) * HALF_THE_LARGEST_GAP)
