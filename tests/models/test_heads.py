"""Heads: values worked by hand, initial values, ensembles, and equality on a mesh."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import device_mesh

from agentrl_jax.distributed.sharding import batch_sharding, is_logical_axes, weight_shardings
from agentrl_jax.errors import UserError
from agentrl_jax.models.critic_readout import TokenBaseline, chosen_values_and_logsumexp
from agentrl_jax.models.heads import CriticEnsemble, HeadConfig
from agentrl_jax.policy import TokenCritic

WIDTH, VOCAB = 8, 10
HIDDEN = np.random.default_rng(0).normal(size=(4, 6, WIDTH)).astype(np.float32)
RANDOM = HeadConfig(layers=2, hidden=12, scale=1.0, bias=-4.4)
BY_HAND = {
    "kernel_0": jnp.array([[1.0, 0.0], [0.0, -1.0]]),
    "bias_0": jnp.array([0.0, 1.0]),
    "kernel": jnp.array([[2.0], [3.0]]),
    "bias": jnp.array([-4.5]),
}


def test_a_value_head_worked_by_hand():
    head = HeadConfig().build(2)
    hidden = jnp.array([[1.0, 2.0], [-1.0, -1.0]])  # through ReLU: [1, 0] and [0, 2]
    np.testing.assert_array_equal(head.apply(BY_HAND, hidden), [2 - 4.5, 6 - 4.5])
    gradient = jax.grad(lambda p: jnp.sum(head.apply(p, hidden)))(BY_HAND)
    want = {"kernel_0": [[2, -3], [4, -3]], "bias_0": [2, 3], "kernel": [[1], [2]], "bias": [2]}
    jax.tree.map(
        np.testing.assert_array_equal,
        gradient,
        {name: np.array(x, np.float32) for name, x in want.items()},
    )


def test_a_linear_q_head_worked_by_hand():
    head = HeadConfig(layers=0).build(2, actions=3)
    params = {
        "kernel": jnp.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]]),
        "bias": jnp.array([0.5, 0.0, 0.0]),
    }
    got = head.apply(params, jnp.array([[[2.0, 1.0]]]))
    np.testing.assert_array_equal(got, [[[2.5, 5.0, 5.0]]])
    assert jax.tree.map(jnp.shape, head.init(jax.random.key(0))) == {"kernel": (2, 3), "bias": (3,)}


@pytest.mark.slow
@pytest.mark.parametrize("actions", [0, VOCAB])
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_head_starts_at_exactly_its_bias(actions, layers, dtype):
    head = HeadConfig(layers=layers, bias=-4.4).build(WIDTH, actions)
    values = head.apply(head.init(jax.random.key(0)), jnp.asarray(HIDDEN, dtype))
    assert values.shape == (4, 6, VOCAB)[: 3 if actions else 2] and values.dtype == jnp.float32
    np.testing.assert_array_equal(values, np.float32(-4.4))


def test_a_head_at_zero_still_learns():
    head = HeadConfig().build(WIDTH)
    params = head.init(jax.random.key(0))
    gradient = jax.grad(lambda p: jnp.sum((head.apply(p, jnp.asarray(HIDDEN)) - 1.0) ** 2))(params)
    assert np.abs(gradient["kernel"]).max() > 0 and gradient["bias"][0] == -2 * 24


def test_the_scale_of_the_last_weights_is_that_of_their_fan_in():
    params = HeadConfig(layers=0, scale=0.5).build(400, actions=100).init(jax.random.key(0))
    np.testing.assert_allclose(params["kernel"].std(), 0.5 / 400**0.5, rtol=0.02)
    hidden = HeadConfig().build(400).init(jax.random.key(0))["kernel_0"]
    np.testing.assert_allclose(hidden.std(), 1 / 400**0.5, rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("actions", [0, VOCAB])
def test_copies_are_the_critic_alone_with_other_weights(actions):
    head = RANDOM.build(WIDTH, actions)
    twins = CriticEnsemble(head, 3)
    params = twins.init(jax.random.key(0))
    values = twins.apply(params, jnp.asarray(HIDDEN))
    assert values.shape == (3, 4, 6, VOCAB)[: 4 if actions else 3]
    for i in range(3):
        alone = head.apply(jax.tree.map(lambda x, i=i: x[i], params), jnp.asarray(HIDDEN))
        np.testing.assert_allclose(values[i], alone, atol=1e-6)
    assert np.abs(values[0] - values[1]).min() > 0
    gradient = jax.grad(lambda p: jnp.sum(twins.apply(p, jnp.asarray(HIDDEN))[1]))(params)
    assert all(
        np.abs(x[0]).max() == 0 and np.abs(x[2]).max() == 0 and np.abs(x[1]).max() > 0
        for x in jax.tree.leaves(gradient)
    )


@pytest.mark.parametrize(
    "critic",
    [
        RANDOM.build(WIDTH),
        CriticEnsemble(RANDOM.build(WIDTH, VOCAB)),
        TokenBaseline(RANDOM.build(WIDTH)),
    ],
)
def test_every_weight_has_an_axis_name_per_dimension(critic):
    shapes = jax.eval_shape(critic.init, jax.random.key(0))
    jax.tree.map(
        lambda x, names: len(x.shape) == len(names) or pytest.fail(str(names)),
        shapes,
        critic.axes(),
        is_leaf=is_logical_axes,
    )
    assert isinstance(critic, TokenCritic)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2])
def test_sharded_twins_equal_one_device_and_every_device_holds_its_share(layers):
    twins = CriticEnsemble(dataclasses.replace(RANDOM, layers=layers).build(WIDTH, VOCAB))
    params = twins.init(jax.random.key(0))
    mesh = device_mesh(data=2, fsdp=2, tensor=2)
    spread = jax.device_put(params, weight_shardings(mesh, twins.axes(), params))
    tokens = np.random.default_rng(1).integers(0, VOCAB, (4, 6), np.int32)

    def loss(params, hidden, tokens):
        q, total = chosen_values_and_logsumexp(twins, params, hidden, tokens, max_chunk_values=200)
        values = twins.apply(params, hidden)
        return jnp.sum(jnp.sin(q) + total) + jnp.sum(values**2), (q, total, values)

    run = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
    alone = run(params, HIDDEN, tokens)
    rows = batch_sharding(mesh)
    got = run(spread, *jax.device_put((HIDDEN, tokens), rows))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5),
        alone,
        jax.device_get(got),
    )
    shares = {
        name: {x.data.shape for x in spread[name].addressable_shards}
        for name in spread
        if "kernel" in name
    }
    assert shares == {"kernel_0": {(2, 4, 6)}, "kernel": {(2, 6, 5)}} | (
        {"kernel_1": {(2, 6, 6)}} if layers == 2 else {}
    )
    assert twins.axes()[f"kernel_{layers - 1}"] == (
        "copies",
        "hidden",
        "embed",
    )  # split by inputs; the last kernel by its outputs


@pytest.mark.parametrize("change", [{"layers": -1}, {"hidden": -2}])
def test_sizes_that_make_no_sense_are_refused(change):
    with pytest.raises(UserError, match="A head cannot have width 4"):
        HeadConfig(**change).build(4)
    with pytest.raises(UserError, match="width 0"):
        HeadConfig().build(0)
    with pytest.raises(UserError, match="At least 1 copy"):
        CriticEnsemble(HeadConfig().build(4), 0)
