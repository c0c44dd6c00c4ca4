"""Weights in few bits that are rounded at random move as float32 weights do, on average."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from support.fixtures import device_mesh, tiny_policy
from support.learner_updates import batch_of, split_batch

from agentrl_jax.hashed_bits import array_bits
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig, StochasticRounding
from agentrl_jax.learner.parameter_groups import ParameterGroup, ParameterGroups
from agentrl_jax.learner.stochastic_rounding import round_stochastically
from agentrl_jax.storage.config_json import from_json, to_json

STEPS, RATE = 1000, 1e-6
KEY = np.array([1, 2], np.uint32)
DTYPES = ["bfloat16", "float16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_of_roundings_is_the_number_and_each_is_next_to_it(dtype: str):
    draws, count = 4096, 64
    signs, exponents = np.random.default_rng(0).normal(size=(2, count))
    x = (np.sign(signs) * 2.0 ** (3 * exponents)).astype(np.float32)
    rounded = np.asarray(
        round_stochastically(
            jnp.broadcast_to(jnp.asarray(x), (draws, count)),
            jnp.dtype(dtype),
            array_bits(KEY, 0, (draws, count)),
        ).astype(jnp.float32),
        np.float64,
    )
    low, high = rounded.min(axis=0), rounded.max(axis=0)
    assert ((rounded == low) | (rounded == high)).all() and (low < x).all() and (x < high).all()
    spacing = float(jnp.finfo(dtype).eps) * 2.0 ** np.floor(np.log2(np.abs(x)))
    np.testing.assert_allclose(high - low, spacing)
    share = (x.astype(np.float64) - low) / (high - low)
    standard_error = (high - low) * np.sqrt(share * (1 - share) / draws)
    assert (np.abs(rounded.mean(axis=0) - x) < 4.5 * standard_error).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_dtype_holds_stays(dtype: str):
    x = jnp.array([0.0, 1.0, -0.75, 2.0**-9, jnp.inf, -jnp.inf, jnp.nan], jnp.float32)
    for i in range(50):
        rounded = round_stochastically(x, jnp.dtype(dtype), array_bits(KEY, i, x.shape))
        np.testing.assert_array_equal(rounded.astype(jnp.float32), x)


WEIGHTS = 0.02 * jax.random.normal(jax.random.key(3), (64, 64))
SIGNS = jnp.sign(jax.random.normal(jax.random.key(4), (64, 64)))


def trained(config: OptimizerConfig, dtype: str, steps: int = STEPS) -> jax.Array:
    """The weights after updates by a noisy gradient of constant mean."""
    tx = config.build(steps)

    @jax.jit
    def train(weights: jax.Array) -> jax.Array:
        def update(carry: Any, key: jax.Array) -> tuple[Any, None]:
            weights, state = carry
            gradient = (SIGNS + jax.random.normal(key, SIGNS.shape)).astype(dtype)
            updates, state = tx.update(gradient, state, weights)
            return (optax.apply_updates(weights, updates), state), None

        keys = jax.random.split(jax.random.key(5), steps)
        return jax.lax.scan(update, (weights, tx.init(weights)), keys)[0][0]

    with jax.numpy_dtype_promotion("standard"):
        return train(WEIGHTS.astype(dtype))


def displacement(config: OptimizerConfig, dtype: str) -> np.ndarray:
    after = trained(config, dtype)
    assert after.dtype == dtype
    return np.asarray(after, np.float64) - np.asarray(WEIGHTS.astype(dtype), np.float64)


def test_small_steps_move_bfloat16_weights_as_far_as_float32_ones():
    exact = displacement(AdamWConfig(RATE), "float32")
    lost = displacement(AdamWConfig(RATE), "bfloat16")
    rounded = displacement(StochasticRounding(AdamWConfig(RATE)), "bfloat16")
    assert (lost != 0).mean() < 0.1
    assert (rounded != 0).mean() > 0.95
    assert np.sum(rounded * exact) / np.sum(exact**2) == pytest.approx(1, abs=0.03)
    assert np.sum(rounded * exact) / np.linalg.norm(rounded) / np.linalg.norm(exact) > 0.8


def test_random_numbers_depend_on_seed_and_update_alone():
    config = StochasticRounding(AdamWConfig(1e-3))
    first, again, other = (
        np.asarray(trained(x, "bfloat16", 5), np.float32)
        for x in (config, config, dataclasses.replace(config, seed=1))
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.2


def test_wide_weights_are_left_to_their_optimizer():
    adamw = AdamWConfig(1e-3)
    np.testing.assert_array_equal(
        trained(StochasticRounding(adamw), "float32", 5), trained(adamw, "float32", 5)
    )


@pytest.mark.parametrize("axes", [("fsdp", None), ("tensor", "fsdp"), (None, "tensor")])
def test_sharded_weights_are_rounded_as_on_one_device(axes: tuple[str | None, ...]):
    tx = StochasticRounding(AdamWConfig(1e-3)).build(3)
    mesh = device_mesh(fsdp=4, tensor=2)

    def updated(weights: Any) -> tuple[Any, Any]:
        state = tx.init(weights)
        for _ in range(3):
            updates, state = jax.jit(tx.update)(SIGNS.astype(jnp.bfloat16), state, weights)
            weights = optax.apply_updates(weights, updates)
        return weights, state

    weights = WEIGHTS.astype(jnp.bfloat16)
    with jax.numpy_dtype_promotion("standard"):
        alone = updated(weights)
        sharded = updated(jax.device_put(weights, NamedSharding(mesh, PartitionSpec(*axes))))
    assert len(sharded[0].sharding.device_set) == 8
    jax.tree.map(np.testing.assert_array_equal, sharded, alone)


def likelihood(logp: Any, entropy: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
    return -logp, {}


def test_a_learner_trains_bfloat16_weights_without_a_warning(capsys: pytest.CaptureFixture[str]):
    policy = tiny_policy(compute_dtype="bfloat16", param_dtype="bfloat16", layers=1)
    groups = ParameterGroups({"all": ParameterGroup(".*", AdamWConfig(1e-4))})
    tx = StochasticRounding(groups).build(3)
    learner = Learner(policy, tx, likelihood, device_mesh(fsdp=2))
    params = policy.init(jax.random.key(0))
    state = learner.init(jax.random.key(1), params)
    metrics: dict[str, Any] = {}
    for _ in range(3):
        state, metrics = learner.update(state, split_batch(batch_of(0)[1], 16))
    assert capsys.readouterr().err == ""
    dtypes = {x.dtype.name for x in jax.tree.leaves((state.params, state.opt_state))}
    assert dtypes == {"bfloat16", "int32"}
    assert metrics["learning_rate/all"] == np.float32(1e-4)
    moved = jax.tree.map(lambda a, b: np.asarray(a != b).mean(), state.params, params)
    assert 0.05 < np.mean(jax.tree.leaves(moved)) < 0.95


def test_the_config_survives_json():
    config = StochasticRounding(AdamWConfig(1e-5), seed=3)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
