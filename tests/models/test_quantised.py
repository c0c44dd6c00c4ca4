"""Weights in few bits: the formats against hand-worked numbers, and adapters over a quantised base against the dense one it stands for."""

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
from hand_made import grown, mesh_of

from agentrl_jax import models
from agentrl_jax.algorithms.supervised import SupervisedBatch
from agentrl_jax.batch import pack
from agentrl_jax.checkpoint import Keeper, load_params
from agentrl_jax.errors import UserError
from agentrl_jax.learner import Learner, fetch_metrics
from agentrl_jax.models.adapters import PROJECTIONS, LoraConfig
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.experts import ExpertsConfig
from agentrl_jax.models.pretrained import Pretrained
from agentrl_jax.models.quantised import NF4, Quantised, int8, is_quantised, nf4
from agentrl_jax.policy import Inputs
from agentrl_jax.rows import rows_of
from agentrl_jax.sharding import weight_shardings

VOCAB = 13
BASE = DecoderConfig(layers=2, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, qkv_bias=True)
SPARSE = dataclasses.replace(BASE, tied_head=False, experts=ExpertsConfig(4, 2, 12, dense=(1,)))
FORMATS = pytest.mark.parametrize("quantise", [nf4, int8], ids=["nf4", "int8"])
FORMATS_SLOW = pytest.mark.parametrize("quantise", [nf4, pytest.param(int8, marks=pytest.mark.slow)], ids=["nf4", "int8"])
HALF_THE_LARGEST_GAP = (NF4[1] - NF4[0]) / 2


def inputs() -> Inputs:
    tokens = np.random.default_rng(1).integers(0, VOCAB, (2, 9), np.int32)
    return Inputs(tokens=tokens, positions=np.broadcast_to(np.arange(9, dtype=np.int32), (2, 9)), segment_ids=np.ones((2, 9), np.int32))


def normal(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(0), shape)


@functools.cache
def policy_of(quantise: Any = nf4, base: str = "dense") -> Any:
    if base == "sparse":
        return LoraConfig(SPARSE, rank=2, alpha=4.0, targets=(*PROJECTIONS, "router", "embedding", "head"), quantise=quantise).build(VOCAB)
    return LoraConfig(BASE, rank=3, alpha=6.0, quantise=quantise).build(VOCAB)


def drawn(shapes: Any, seed: int, scale: float) -> Any:
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(random.normal(0.0, scale, x.shape), x.dtype), shapes)


def params_of(policy: Any, seed: int = 0) -> Any:
    """Random weights, and adapters that do add something."""
    base = drawn(jax.eval_shape(policy.base.init, jax.random.key(0)), seed, 0.25)
    adapters = drawn(jax.eval_shape(policy.init_adapters, jax.random.key(0)), seed + 1, 0.1)
    return {"base": policy.quantised(base), "adapters": adapters}


@functools.cache
def made(quantise: Any = nf4, base: str = "dense") -> tuple[Any, Any]:
    policy = policy_of(quantise, base)
    return policy, params_of(policy)


def dense(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.dense() if isinstance(x, Quantised) else x, tree, is_leaf=is_quantised)


def plain(policy: Any) -> Any:
    """The same policy over a dense base."""
    return dataclasses.replace(policy, config=dataclasses.replace(policy.config, quantise=None))


def held(x: Any) -> Quantised:
    assert isinstance(x, Quantised)
    return x


def logits(policy: Any, params: Any) -> jax.Array:
    return jax.jit(lambda params: policy.logits(params, policy.apply(params, inputs()).hidden))(params)


def test_the_sixteen_levels_are_quantiles_of_a_normal_distribution():
    tail = 1 - 0.9677083  # the mean of half a step of 16 levels and half a step of 15, as the published levels round it
    assert tail == pytest.approx((1 / 32 + 1 / 30) / 2, abs=1e-7)
    above = scipy.stats.norm.ppf(np.linspace(0.5, 1 - tail, 9))
    below = scipy.stats.norm.ppf(np.linspace(tail, 0.5, 8))
    np.testing.assert_allclose(NF4, np.concatenate([below[:-1] / -below[0], above / above[-1]]), atol=1e-7)
    assert len(NF4) == 16 and NF4[0] == -1 and NF4[7] == 0 and NF4[15] == 1


def test_nf4_takes_the_nearest_level_of_each_block():
    # Over the largest, -4 and 8: the codes of -1, 0.5, -0.25, 0.02 and of 0.75, 1, -0.65, 0. Two to a byte, the first below.
    first, second = [-4.0, 2.0, -1.0, 0.08], [6.0, 8.0, -5.2, 0.0]
    got = held(nf4(jnp.asarray([first * 16 + second * 16])))
    np.testing.assert_array_equal(got.scales, [[4.0, 8.0]])
    codes = [0 + 16 * 12, 4 + 16 * 7] * 16 + [14 + 16 * 15, 1 + 16 * 7] * 16
    np.testing.assert_array_equal(got.codes, np.asarray([codes], np.uint8))
    want = [-4.0, 4 * 0.44070983, 4 * -0.28444138, 0.0] * 16 + [8 * 0.72295684, 8.0, 8 * -0.6961928, 0.0] * 16
    np.testing.assert_allclose(got.dense(), [want], rtol=1e-6)


def test_int8_takes_the_nearest_multiple_of_a_127th_of_the_largest():
    got = held(int8(jnp.asarray([[-254.0, 3.0, 2.9, 100.0] * 16])))
    np.testing.assert_array_equal(got.scales, [[254.0]])
    np.testing.assert_array_equal(got.codes, np.asarray([[-127, 2, 1, 50] * 16], np.int8))
    np.testing.assert_allclose(got.dense(), [[-254.0, 4.0, 2.0, 100.0] * 16], rtol=1e-6)


@pytest.mark.parametrize(("quantise", "bound"), [(nf4, HALF_THE_LARGEST_GAP), (int8, 1 / 254)], ids=["nf4", "int8"])
def test_errors_are_within_half_a_step_of_each_blocks_largest(quantise, bound: float):
    x = normal(5, 3, 256) * jnp.geomspace(1e-6, 1e6, 15).reshape(5, 3, 1)
    error = np.abs(np.asarray(held(quantise(x)).dense() - x, np.float64)).reshape(5, 3, 4, 64)
    largest = np.abs(np.asarray(x, np.float64)).reshape(5, 3, 4, 64).max(-1, keepdims=True)
    assert 0.5 * bound < (error / largest).max() <= bound * (1 + 1e-5)


@FORMATS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_can_be_represented_comes_back_exactly(quantise, dtype: str):
    once = held(quantise(normal(4, 128).astype(dtype)))
    assert once.dense().dtype == dtype
    twice = held(quantise(once.dense()))
    jax.tree.map(np.testing.assert_array_equal, twice, once)
    np.testing.assert_array_equal(held(quantise(jnp.zeros((2, 64)))).dense(), 0)


@FORMATS
@pytest.mark.parametrize(("last", "blocks"), [(128, 2), (64, 1), (96, 2), (24, 1), (80, 2), (134, 67), (2, 1)])
def test_a_block_is_the_longest_that_divides_the_axis(quantise, last: int, blocks: int):
    x = normal(3, last)
    got = held(quantise(x))
    assert got.scales.shape == (3, blocks) and got.dense().shape == x.shape
    assert got.codes.shape == (3, last // 2 if quantise is nf4 else last) and got.codes.dtype.itemsize == 1


@pytest.mark.slow
def test_a_fresh_base_is_quantised():
    policy = LoraConfig(dataclasses.replace(BASE, layers=1), quantise=nf4).build(VOCAB)
    got, want = policy.init(jax.random.key(0)), policy.base.init(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, got["base"]["layers"]["mlp"]["up"], nf4(want["layers"]["mlp"]["up"]))
    np.testing.assert_array_equal(got["base"]["embedding"], want["embedding"])


def test_axes_that_no_block_divides_stay_dense():
    assert isinstance(nf4(normal(3, 15)), jax.Array) and isinstance(int8(normal(3, 67)), jax.Array)
    assert held(int8(normal(3, 15))).scales.shape == (3, 1)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["dense", pytest.param("sparse", marks=pytest.mark.slow)])
@FORMATS_SLOW
def test_adapters_over_a_quantised_base_are_those_over_its_dense_weights(quantise, base: str):
    policy, params = made(quantise, base)
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


def test_matrices_of_layers_alone_are_quantised():
    params = jax.eval_shape(policy_of(nf4, "sparse").init, jax.random.key(0))
    found = {path[-1].key for path, x in jax.tree.leaves_with_path(params["base"], is_leaf=is_quantised) if is_quantised(x)}
    assert found == set(PROJECTIONS)
    assert held(params["base"]["layers"]["mlp"]["down"]).codes.shape == (1, 4, 12, 8)  # [layers, experts, hidden, embed / 2]
    assert held(params["base"]["layers_1"]["attention"]["query"]).codes.shape == (1, 16, 4, 4)
    with pytest.raises(UserError, match="whose `kept` is not None"):
        LoraConfig(dataclasses.replace(BASE, kept=None), quantise=nf4).build(VOCAB)


@pytest.mark.slow
@FORMATS
def test_shapes_axes_and_what_is_trained_agree(quantise):
    policy = policy_of(quantise, "sparse")
    params, axes = jax.eval_shape(policy.init, jax.random.key(0)), policy.axes()
    jax.tree.map(lambda x, names, _: [len(x.shape) == len(names)].index(True), params, axes, policy.trainable())
    assert axes["base"]["layers"]["mlp"]["gate"].scales == ("layers", "experts", "embed", "hidden")
    assert not any(jax.tree.leaves(policy.trainable()["base"])) and all(jax.tree.leaves(policy.trainable()["adapters"]))


@pytest.mark.slow
@FORMATS_SLOW
def test_merging_gives_dense_weights(quantise):
    policy, params = made(quantise)
    merged = policy.merge(params)
    assert jax.tree.structure(merged) == jax.tree.structure(policy.base.trainable())
    np.testing.assert_allclose(logits(policy.base, merged), logits(policy, params), atol=1e-5)
    untouched = dataclasses.replace(policy, config=dataclasses.replace(policy.config, targets=("out",)))
    merged = untouched.merge({"base": params["base"], "adapters": {}})
    np.testing.assert_array_equal(merged["layers"]["mlp"]["up"], params["base"]["layers"]["mlp"]["up"].dense())


@pytest.mark.slow
@pytest.mark.parametrize(("base", "merged"), [("dense", True), ("dense", False), pytest.param("sparse", False, marks=pytest.mark.slow)])
def test_sampling_sees_the_policy_that_is_trained(base: str, merged: bool):
    policy, params = made(nf4, base)
    policy = dataclasses.replace(policy, config=dataclasses.replace(policy.config, merged=merged))
    unstacked, rows = policy.unstack(params), inputs()
    assert any(map(is_quantised, jax.tree.leaves(unstacked["base"], is_leaf=is_quantised))) == (not merged)

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
def test_dense_weights_exist_a_layer_at_a_time(quantise):
    deep = DecoderConfig(layers=12, width=256, hidden=1024, heads=8, kv_heads=4, head_size=32)
    policy = LoraConfig(deep, rank=2, quantise=quantise).build(VOCAB)
    params = jax.eval_shape(policy.init, jax.random.key(0))
    whole = sum(x.size * 4 for x in jax.tree.leaves(jax.eval_shape(policy.base.init, jax.random.key(0))))

    def loss(adapters: Any, base: Any) -> jax.Array:
        both = {"base": base, "adapters": adapters}
        return jnp.mean(policy.logits(both, policy.apply(both, inputs()).hidden))

    memory = jax.jit(jax.value_and_grad(loss)).lower(params["adapters"], params["base"]).compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 0.25 * whole
    assert memory.argument_size_in_bytes < (0.16 if quantise is nf4 else 0.29) * whole


def batch() -> SupervisedBatch:
    rng = np.random.default_rng(0)
    rows = [rows_of(grown([(2, 2, False, 0.0), (1, 3, False, 0.0)], rng, VOCAB))[0] for _ in range(4)]
    layout = pack(rows, 12, 4)
    mask = layout.batch(np.zeros((layout.bins, 12), np.float32)).action_mask
    return SupervisedBatch(batch=layout.batch(np.asarray(mask / mask.sum(), np.float32)))


def learner_on(mesh: Any, quantise: Any, base: str = "dense") -> Learner:
    return Learner(policy_of(quantise, base), optax.sgd(0.1, momentum=0.9), lambda logp, entropy, batch: (-logp, {"logp": logp}), mesh)


@functools.cache
def updated(mesh: Any, quantise: Any, base: str = "dense") -> tuple[Any, dict[str, float]]:
    learner = learner_on(mesh, quantise, base)
    state, metrics = learner.update(learner.init(jax.random.key(0), made(quantise, base)[1]), [batch()])
    return state, fetch_metrics(metrics)


@pytest.mark.slow
def test_an_update_changes_adapters_alone():
    params = made()[1]
    state, metrics = updated(mesh_of(), nf4)
    jax.tree.map(np.testing.assert_array_equal, state.params["base"], params["base"])
    assert jax.tree.structure(state.params) == jax.tree.structure(params)
    changed = jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), state.params["adapters"], params["adapters"])
    assert min(jax.tree.leaves(changed)) > 1e-5 and metrics["gradient_norm"] > 1e-3
    assert len(jax.tree.leaves(state.opt_state)) == len(jax.tree.leaves(params["adapters"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("quantise", "base", "sizes"),
    [
        (nf4, "dense", {"fsdp": 2, "tensor": 2}),
        pytest.param(int8, "dense", {"fsdp": 2, "tensor": 2}, marks=pytest.mark.slow),
        pytest.param(nf4, "sparse", {"fsdp": 2, "expert": 2, "tensor": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_split_base_gives_what_one_device_gives(quantise, base: str, sizes: dict[str, int]):
    (want, one), (got, several) = updated(mesh_of(), quantise, base), updated(mesh_of(**sizes), quantise, base)
    assert several == pytest.approx(one, rel=1e-6, abs=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), jax.device_get(got.params), jax.device_get(want.params))
    if base == "dense":
        gate = got.params["base"]["layers"]["mlp"]["gate"]
        parts = [x.addressable_shards[0].data.shape for x in (gate.codes, gate.scales)]
        assert parts == [(2, 8, 6 if quantise is nf4 else 12), (2, 8, 1)]  # [layers, embed / fsdp, hidden / tensor]; one block: whole


@pytest.mark.slow
def test_a_saved_state_is_restored_exactly(tmp_path: Path):
    state = updated(mesh_of(), nf4)[0]
    keeper = Keeper(tmp_path)
    keeper.save(1, state, {"step": 1})
    fresh = learner_on(mesh_of(fsdp=2), nf4).init(jax.random.key(5), params_of(policy_of(), 5))
    again = keeper.restore(fresh)[0]
    keeper.close()
    assert jax.tree.structure(again.params) == jax.tree.structure(state.params)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(again.params), jax.device_get(state.params))
    loaded = load_params(tmp_path, jax.eval_shape(policy_of().init, jax.random.key(0)))
    jax.tree.map(np.testing.assert_array_equal, loaded, jax.device_get(state.params))


@pytest.mark.slow
def test_a_folders_model_is_quantised_as_it_is_loaded(tmp_path: Path):
    wide = dataclasses.replace(BASE, width=32, hidden=256, qkv_bias=False, qk_norm=True)
    decoder = wide.build(VOCAB)
    models.save(tmp_path, decoder, drawn(jax.eval_shape(decoder.init, jax.random.key(0)), 3, 0.25))
    config, mesh = LoraConfig(Pretrained(str(tmp_path)), rank=2, quantise=nf4), mesh_of(fsdp=2, tensor=2)
    policy = config.build(VOCAB)
    params = config.start(policy, jax.random.key(0), mesh)
    shardings = weight_shardings(mesh, policy.axes(), jax.eval_shape(policy.init, jax.random.key(0)))
    for x, sharding in zip(jax.tree.leaves(params["base"]), jax.tree.leaves(shardings["base"]), strict=True):
        assert x.sharding.is_equivalent_to(sharding, x.ndim)
    got, want = dense(params["base"])["layers"]["mlp"]["gate"], models.load(tmp_path)[1]["layers"]["mlp"]["gate"]
    np.testing.assert_allclose(got, want, atol=float(jnp.abs(want).max()) * HALF_THE_LARGEST_GAP)
