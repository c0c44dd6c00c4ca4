"""Weights move under small learning rates: float32 masters, products and gathers in bfloat16."""

import dataclasses
import re
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import device_mesh, tiny_policy
from support.learner_updates import batch_of, split_batch

from agentrl_jax.inference.device_state import DeviceState
from agentrl_jax.learner.chunked_logp import token_logp
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.logp_bound import MAX_LOGP_GAP, logp_bound, rounding_bound
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.learner.rounding import lost_fraction, rounding_warning
from agentrl_jax.models.adapters import LoraConfig
from agentrl_jax.models.decoder import Decoder
from agentrl_jax.models.layers import embedding_lookup, head_product
from agentrl_jax.models.quantized import int8, is_quantized
from agentrl_jax.sampling_weights import narrow_matrices, sampling_dtype, sampling_weights

STEPS, RATE = 100, 1e-6
POLICY = tiny_policy(compute_dtype="bfloat16", layers=1)


def likelihood(logp: Any, entropy: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
    return -logp, {}


def moved_fraction(policy: Decoder) -> float:
    """The fraction of the weights that differ after `STEPS` updates by AdamW at `RATE`."""
    learner = Learner(policy, AdamWConfig(RATE).build(STEPS), likelihood, device_mesh())
    params = policy.init(jax.random.key(0))
    state = learner.init(jax.random.key(1), params)
    batches = [split_batch(batch_of(seed)[1], 16) for seed in range(4)]
    for step in range(STEPS):
        state, _ = learner.update(state, batches[step % 4])
    assert {x.dtype.name for x in jax.tree.leaves((state.params, state.opt_state))} == {
        policy.config.param_dtype,
        "int32",
    }
    differs = jax.tree.map(lambda a, b: np.asarray(a != b).ravel(), state.params, params)
    return float(np.concatenate(jax.tree.leaves(differs)).mean())


def test_small_steps_move_float32_masters(capsys: pytest.CaptureFixture[str]):
    assert moved_fraction(POLICY) > 0.99 and capsys.readouterr().err == ""


@pytest.mark.slow
def test_small_steps_do_not_move_bfloat16_weights(capsys: pytest.CaptureFixture[str]):
    narrow = dataclasses.replace(POLICY.config, param_dtype="bfloat16").build(POLICY.vocab_size)
    assert moved_fraction(narrow) < 0.5
    assert capsys.readouterr().err.startswith("warning: ")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_an_update_is_lost_below_the_fraction_and_not_at_four_times_it(dtype: str):
    weights = jnp.linspace(0.5, 1.0, 500).astype(dtype)
    fraction = jnp.asarray(lost_fraction(jnp.dtype(dtype)), jnp.float32)
    wide = weights.astype(jnp.float32)
    assert ((wide * (1 + 0.99 * fraction)).astype(dtype) == weights).all()
    assert ((wide * (1 + 4 * fraction)).astype(dtype) != weights).all()


def test_the_warning_counts_the_trained_weights_in_few_bits():
    shapes = {name: jax.ShapeDtypeStruct((6, 4), name) for name in ("float32", "bfloat16")}
    warning = rounding_warning(shapes)
    assert "24 trained weights are bfloat16" in warning and "1/512" in warning
    assert "no weight above 0.00051" in warning
    assert rounding_warning({"a": shapes["float32"]}) == ""


def test_adapters_are_float32_over_a_frozen_base_in_bfloat16():
    base = dataclasses.replace(POLICY.config, param_dtype="bfloat16")
    policy = LoraConfig(base, rank=2).build(POLICY.vocab_size)
    shapes = jax.eval_shape(policy.init, jax.random.key(0))
    trained = jax.tree.map(
        lambda is_trained, x: x if is_trained else None, policy.trainable(), shapes
    )
    assert {x.dtype.name for x in jax.tree.leaves(trained)} == {"float32"}
    assert {x.dtype.name for x in jax.tree.leaves(shapes["base"])} == {"bfloat16"}
    assert rounding_warning(trained) == ""


# Of a program before it is lowered to the CPU's own dtypes, after it was split over devices.
GATHER = re.compile(r"= (\w+)\[([\d,]+)\]\S* all-gather\(")


@pytest.mark.parametrize("sizes", [{"fsdp": 8}, {"data": 2, "fsdp": 2, "tensor": 2}])
def test_devices_gather_weights_in_the_dtype_of_their_products(
    sizes: dict[str, int], tmp_path: Path
):
    policy = tiny_policy(compute_dtype="bfloat16", layers=1, tied_head=False)
    learner = Learner(policy, AdamWConfig().build(1), likelihood, device_mesh(**sizes))
    gradient, _ = learner.lower(split_batch(batch_of(0)[1], 16)[0])
    options = {"to": str(tmp_path), "hlo_as_text": True, "hlo_pass_re": "spmd-partitioning"}
    name = "jax_persistent_cache_min_compile_time_secs"
    seconds = jax.config.values[name]
    try:  # a program from the cache is not dumped
        jax.config.update(name, 1e9)
        gradient.compile({f"xla_dump_{name}": value for name, value in options.items()})
    finally:
        jax.config.update(name, seconds)
    (dump,) = tmp_path.glob("*after_spmd-partitioning*.txt")
    gathers = GATHER.findall(dump.read_text())
    shapes = {shape for _, shape in gathers}
    dtypes = {dtype for dtype, _ in gathers}
    assert len(shapes) > 3 and dtypes <= {"bf16", "s32", "u32"}, gathers


def test_rows_are_looked_up_in_the_narrow_dtype_and_their_gradient_is_summed_in_the_tables():
    table, tokens = jax.random.normal(jax.random.key(0), (5, 4)), jnp.zeros((1, 1000), jnp.int32)

    def lookup(table: jax.Array) -> jax.Array:
        return jnp.asarray(embedding_lookup(table, tokens, "bfloat16"))

    rows, pullback = jax.vjp(lookup, table)
    np.testing.assert_array_equal(rows[0, 0], table[0].astype(jnp.bfloat16))
    (gradient,) = pullback(jnp.ones_like(rows))
    assert gradient.dtype == jnp.float32 and gradient[0].tolist() == [1000.0] * 4
    assert not gradient[1:].any()


def test_the_heads_gradient_products_have_the_compute_dtype_and_logits_float32():
    hidden, table = (
        jax.random.normal(jax.random.key(i), shape).astype(jnp.bfloat16)
        for i, shape in enumerate([(2, 3, 8), (5, 8)])
    )
    logits, pullback = jax.vjp(head_product, hidden, table)
    want, exact = jax.vjp(
        lambda x, y: jnp.einsum("btd,vd->btv", x, y),
        hidden.astype(jnp.float32),
        table.astype(jnp.float32),
    )
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, want, rtol=1e-5, atol=1e-5)
    tilt = jax.random.normal(jax.random.key(2), logits.shape)
    for got, gradient, operand in zip(pullback(tilt), exact(tilt), (hidden, table)):
        assert got.dtype == jnp.bfloat16 and got.shape == operand.shape
        np.testing.assert_allclose(got.astype(jnp.float32), gradient, atol=0.05)
    text = str(jax.make_jaxpr(pullback)(tilt))
    assert "bf16[2,3,8] = dot_general" in text and "f32[2,3,8] = dot_general" not in text


def test_an_engine_rounds_matrices_alone_and_never_widens():
    tree = {
        "matrix": jnp.ones((2, 3)),
        "norm": jnp.ones(3),
        "ids": jnp.ones((2, 2), jnp.int32),
        "layers": ({"quantized": int8(jnp.ones((2, 64))), "none": None},),
    }
    narrow = narrow_matrices(tree, jnp.dtype("bfloat16"))
    assert narrow["matrix"].dtype == jnp.bfloat16 and narrow["norm"].dtype == jnp.float32
    assert narrow["ids"].dtype == jnp.int32
    quantized = narrow["layers"][0]["quantized"]
    assert is_quantized(quantized) and quantized.scales.dtype == jnp.float32
    again = narrow_matrices(narrow, jnp.dtype("float32"))
    assert again["matrix"].dtype == jnp.bfloat16


def test_an_engine_holds_and_computes_with_the_compute_dtype_of_its_policy():
    params = POLICY.init(jax.random.key(0))
    mesh, dtype = device_mesh(tensor=2), sampling_dtype(POLICY)
    sizes = {"rows": 2, "parked_slots": 0, "positions": 16, "prefill_chunk": 4, "prefill_tokens": 0}
    state = DeviceState(
        POLICY,
        mesh,
        **sizes,
        max_decode_steps=8,
        alternatives=0,
        guesses=0,
        image_patches=(),
        dtype=dtype,
    )
    weights = state.put_weights(params)
    numbers = (jnp.zeros(shape, jnp.int32) for shape in (2, (2, 4), 2, 2))
    with jax.set_mesh(mesh):
        program = state._programs.prefill.lower(weights, state._cache, *numbers, None)
    text = program.as_text().split("func.func public @main")[1].split("->")[0]
    by_axes = {(x.ndim > 1, x.dtype.name) for x in jax.tree.leaves(weights)}
    assert by_axes == {(True, "bfloat16"), (False, "float32")}
    arguments = re.findall(r"%arg\d+: tensor<((?:\d+x)+)(\w+)>", text)
    matrices = {dtype for shape, dtype in arguments if shape.count("x") > 1}
    assert matrices == {"bf16", "i32"}, arguments
    assert sampling_dtype(POLICY, "float32") == jnp.float32
    assert sampling_dtype(tiny_policy()) == jnp.float32


def test_the_bound_of_log_probs_knows_the_engines_dtype():
    policy = tiny_policy(width=64, hidden=256, heads=4, kv_heads=2, head_size=16)
    params = policy.init(jax.random.key(0))
    assert rounding_bound(params, policy.unstack(params)) == 0.0
    rounded = sampling_weights(policy, params, jnp.dtype("bfloat16"))
    bound = rounding_bound(params, rounded)
    assert bound == MAX_LOGP_GAP["bfloat16"] > logp_bound(policy)
    assert rounding_bound(rounded, rounded) == 0.0
    _, batch = batch_of(0)
    narrow = narrow_matrices(params, jnp.dtype("bfloat16"))
    learner, engine = (jax.jit(partial(token_logp, policy))(x, batch)[0] for x in (params, narrow))
    gap = float(jnp.abs(learner - engine)[batch.action_mask].mean())
    assert logp_bound(policy) < gap < bound / 10  # 4e-3
