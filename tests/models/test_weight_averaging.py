"""Polyak averaging and merges of weights, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from support.fixtures import device_mesh

from agentrl_jax.errors import UserError
from agentrl_jax.models.weight_averaging import interpolate, polyak


def tree(seed, dtype=jnp.float32):
    random = np.random.default_rng(seed)
    return {
        "a": jnp.asarray(random.normal(size=(8, 4)), dtype),
        "b": (jnp.asarray(random.normal(size=3), dtype),),
    }


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


def same_bits(a, b):
    assert bits(a) == bits(b)


def test_polyak_worked_by_hand():
    target, online = {"w": jnp.array([10.0, -2.0])}, {"w": jnp.array([20.0, 8.0])}
    np.testing.assert_allclose(polyak(target, online, 0.1)["w"], [11.0, -1.0], rtol=1e-6)
    np.testing.assert_allclose(
        polyak(target, online, jnp.float32(0.1))["w"], [11.0, -1.0], rtol=1e-6
    )
    for _ in range(3):
        target = polyak(target, online, 0.1)
    np.testing.assert_allclose(target["w"], [20 - 10 * 0.9**3, 8 - 10 * 0.9**3], rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_polyak_with_tau_zero_keeps_and_with_tau_one_copies(dtype):
    target, online = tree(0, dtype), tree(1, dtype)
    same_bits(polyak(target, online, 0.0), target)
    same_bits(polyak(target, online, 1.0), online)


def test_polyak_mixes_in_float32_and_keeps_the_targets_dtype():
    target, online = (
        {"w": jnp.array([1.0, 1.0], jnp.bfloat16)},
        {"w": jnp.array([1.0625, 3.0], jnp.bfloat16)},
    )
    got = polyak(target, online, 0.25)["w"]
    assert got.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got.astype(jnp.float32), [1.015625, 1.5])
    wide = polyak({"w": jnp.array([1.0, 1.0])}, online, 0.005)["w"]
    np.testing.assert_allclose(wide, [1.0003125, 1.01], rtol=1e-6)


def test_no_gradient_flows_into_a_target():
    target, online = tree(0), tree(1)
    gradient = jax.grad(
        lambda t, o: sum(jnp.sum(x**2) for x in jax.tree.leaves(polyak(t, o, 0.1))), argnums=(0, 1)
    )(target, online)
    assert all(np.abs(x).max() == 0 for x in jax.tree.leaves(gradient))


def test_interpolation_worked_by_hand():
    trees = [
        {"w": jnp.array([1.0, 10.0])},
        {"w": jnp.array([3.0, -10.0])},
        {"w": jnp.array([5.0, 0.0])},
    ]
    np.testing.assert_allclose(interpolate(trees, (0.5, 0.25, 0.25))["w"], [2.5, 2.5], rtol=1e-6)
    np.testing.assert_allclose(interpolate(trees[:2], (0.1, 0.9))["w"], [2.8, -8.0], rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_weight_of_one_returns_that_tree_bit_for_bit(dtype):
    first, second = tree(0, dtype), tree(1, dtype)
    first["a"], second["a"] = first["a"].at[0, 0].set(-0.0), second["a"].at[0, 1].set(jnp.inf)
    same_bits(interpolate([first, second], (1, 0)), first)
    same_bits(interpolate([first, second], (0.0, 1.0)), second)


def test_identical_trees_come_back_as_they_are():
    for dtype in (jnp.float32, jnp.bfloat16):
        same_bits(interpolate([tree(0, dtype)] * 3, (0.3, 0.3, 0.4)), tree(0, dtype))


def test_a_merge_of_sharded_trees_keeps_their_sharding():
    sharding = NamedSharding(device_mesh(data=2, fsdp=2, tensor=2), PartitionSpec("fsdp", "tensor"))
    trees = [{"a": tree(seed)["a"]} for seed in range(2)]
    got = interpolate([jax.device_put(x, sharding) for x in trees], (0.25, 0.75))
    assert got["a"].sharding == sharding and {
        x.data.shape for x in got["a"].addressable_shards
    } == {(4, 2)}
    np.testing.assert_allclose(
        got["a"], 0.25 * trees[0]["a"] + 0.75 * trees[1]["a"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            {"a": jnp.zeros((8, 4)), "b": (jnp.zeros(4),)},
            r"2 cannot be interpolated: \['b'\]\[0\] is float32\[3\] in one and float32\[4\]",
        ),
        (
            {"a": jnp.zeros((8, 4), jnp.bfloat16), "b": (jnp.zeros(3),)},
            r"\['a'\] is float32\[8, 4\] in one and bfloat16\[8, 4\]",
        ),
        ({"a": jnp.zeros((8, 4))}, r"only one of them has \['b'\]\[0\]"),
        (
            {"a": jnp.zeros((8, 4)), "b": (jnp.zeros(3),), "c": jnp.zeros(1)},
            r"only one of them has \['c'\]",
        ),
        ({"a": jnp.zeros((8, 4)), "b": [jnp.zeros(3)]}, "are trees of other kinds"),
    ],
)
def test_trees_that_differ_are_refused_by_the_name_of_the_tensor(other, sentence):
    with pytest.raises(UserError, match=sentence):
        interpolate([tree(0), other], (0.5, 0.5))


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.0, float("nan")), (0.4, 0.4)])
def test_weights_that_do_not_sum_to_one_are_refused(weights):
    with pytest.raises(UserError, match="must sum to 1"):
        interpolate([tree(0), tree(1)], weights)


def test_one_weight_a_tree_is_needed():
    for trees, weights in (([], ()), ([tree(0)], (0.5, 0.5))):
        with pytest.raises(UserError, match="one weight each"):
            interpolate(trees, weights)


def test_quantized_weights_are_not_averaged():
    codes = {"query": jnp.zeros(4, jnp.uint8)}
    with pytest.raises(
        UserError, match=r"\['query'\] is held in uint8: averages need floating-point weights"
    ):
        polyak(codes, codes, 0.1)
    with pytest.raises(UserError, match="held in uint8"):
        interpolate([codes, codes], [0.5, 0.5])
