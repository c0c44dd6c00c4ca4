"""The mixture of experts against a loop over tokens and experts, on one device and split over a
mesh.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import device_mesh

from agentrl_jax.distributed.sharding import weight_shardings
from agentrl_jax.models.layers import silu
from agentrl_jax.models.moe import Experts, ExpertsConfig, load_balance_loss, mixture_of_experts
from agentrl_jax.models.parameters import apply, init_params, logical_axes

B, T, D, F, E, K = 4, 6, 8, 12, 8, 3


def random(*shape: int, seed: int = 0) -> jnp.ndarray:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def loop(x, chosen, share, gate, up, down):
    """One token and expert at a time, in float64."""
    x, gate, up, down, share = (np.asarray(a, np.float64) for a in (x, gate, up, down, share))
    y = np.zeros_like(x)
    for b, t, k in np.ndindex(*chosen.shape):
        e, token = chosen[b, t, k], x[b, t]
        inner = token @ gate[e]
        y[b, t] += share[b, t, k] * ((inner / (1 + np.exp(-inner)) * (token @ up[e])) @ down[e])
    return y


WEIGHTS = random(E, D, F, seed=1), random(E, D, F, seed=2), random(E, F, D, seed=3)
CHOSEN = jnp.asarray(
    np.random.default_rng(4).permuted(np.tile(np.arange(E - 2), (B, T, 1)), axis=-1)[..., :K],
    jnp.int32,
)  # two experts get no token


@pytest.mark.slow
def test_every_token_reaches_its_experts_whatever_the_load():
    x, share = random(B, T, D), jnp.abs(random(B, T, K, seed=5))
    np.testing.assert_allclose(
        mixture_of_experts(x, CHOSEN, share, *WEIGHTS, 0, silu),
        loop(x, CHOSEN, share, *WEIGHTS),
        atol=1e-4,
    )
    crowded = jnp.zeros((B, T, 1), jnp.int32) + 5  # all tokens to one expert: none is dropped
    np.testing.assert_allclose(
        mixture_of_experts(x, crowded, share[..., :1], *WEIGHTS, 0, silu),
        loop(x, crowded, share, *WEIGHTS),
        atol=1e-4,
    )


def test_the_outputs_of_expert_shards_add_up():
    x, share = random(B, T, D), jnp.abs(random(B, T, K, seed=5))
    gate, up, down = WEIGHTS
    parts = [
        mixture_of_experts(
            x, CHOSEN, share, gate[i : i + 2], up[i : i + 2], down[i : i + 2], i, silu
        )
        for i in range(0, E, 2)
    ]
    np.testing.assert_allclose(sum(parts), loop(x, CHOSEN, share, *WEIGHTS), atol=1e-4)


def test_a_token_does_not_depend_on_its_neighbours():
    x, share = random(B, T, D), jnp.abs(random(B, T, K, seed=5))
    alone = mixture_of_experts(x[:1, :1], CHOSEN[:1, :1], share[:1, :1], *WEIGHTS, 0, silu)
    np.testing.assert_allclose(
        mixture_of_experts(x, CHOSEN, share, *WEIGHTS, 0, silu)[0, 0], alone[0, 0], atol=1e-6
    )


def test_imbalance_is_the_hand_worked_sum():
    # Two experts, three real tokens: choices 0, 0, 1; probabilities of expert 0: .9 .6 .3 -> f
    # (2/3, 1/3), p (.6, .4).
    probs = jnp.array([[[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.0, 1.0]]])
    chosen = jnp.array([[[0], [0], [1], [1]]], jnp.int32)
    real = jnp.array([[True, True, True, False]])
    np.testing.assert_allclose(
        load_balance_loss(probs, chosen, real), 2 * (2 / 3 * 0.6 + 1 / 3 * 0.4), rtol=1e-6
    )
    even = jnp.full((1, 4, 2), 0.5)
    np.testing.assert_allclose(
        load_balance_loss(
            even, jnp.array([[[0], [1], [0], [1]]], jnp.int32), jnp.ones((1, 4), bool)
        ),
        1.0,
        rtol=1e-6,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [{"expert": 8}, {"data": 2, "expert": 2, "tensor": 2}, {"fsdp": 4, "tensor": 2}]
)
def test_every_mesh_gives_one_devices_mixture_and_gradient(sizes: dict[str, int]):
    module = Experts(ExpertsConfig(E, K, F, balance=0.1), silu, 1.0, "float32")
    x, real = random(B, T, D), jnp.ones((B, T), bool)
    params, axes = init_params(module, jax.random.key(0), x, real), logical_axes(module, x, real)

    def loss(params, x, real):
        mixed = apply(module, params, x, real)
        return jnp.sum(jnp.sin(mixed[0])) + mixed[1]

    want = jax.jit(jax.value_and_grad(loss))(params, x, real)
    mesh = device_mesh(**sizes)
    split = jax.device_put(params, weight_shardings(mesh, axes, params))
    shard_shape = split["gate"].addressable_shards[0].data.shape
    assert shard_shape == (
        E // sizes.get("expert", 1),
        D // sizes.get("fsdp", 1),
        F // sizes.get("tensor", 1),
    )
    with jax.set_mesh(mesh):
        got = jax.jit(jax.value_and_grad(loss))(split, x, real)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4), want, got)
