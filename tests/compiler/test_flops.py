"""FLOPs of traced programs: by hand, against XLA's count, and against a decoder's estimate."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec
from support.fixtures import device_mesh, tiny_policy

from agentrl_jax.compiler.flops import matmul_flops
from agentrl_jax.distributed.sharding import MeshConfig
from agentrl_jax.models.memory_estimate import estimate_memory, visible_pair_fraction
from agentrl_jax.policy import PolicyInputs


def flops(f, *args) -> float:
    return matmul_flops(jax.jit(f).trace(*args).jaxpr)


A, B = jnp.ones((3, 4)), jnp.ones((4, 5))


def test_a_product_takes_two_flops_per_pair():
    assert flops(jnp.matmul, A, B) == 2 * 3 * 4 * 5
    assert (
        flops(
            lambda a, b: jnp.einsum("bij,bjk->bik", a, b), jnp.ones((7, 3, 4)), jnp.ones((7, 4, 5))
        )
        == 7 * 2 * 3 * 4 * 5
    )


def test_a_scan_counts_its_iterations_and_any_other_loop_one():
    square = jnp.ones((4, 4))
    single_matmul = 2 * 4**3
    assert (
        flops(lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=6)[0], square)
        == 6 * single_matmul
    )
    assert (
        flops(lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c @ x, x), square)
        == single_matmul
    )


def test_the_branch_with_the_most_flops_counts():
    square = jnp.ones((4, 4))
    assert (
        flops(lambda x: jax.lax.cond(x.sum() > 0, lambda x: x @ x @ x, lambda x: x @ x, x), square)
        == 2 * 2 * 4**3
    )


def test_rematerialized_products_count_again():
    def loss(x, w):
        return jnp.sum(jnp.sin(x @ w) @ w)

    plain, rematerialized = (
        flops(jax.grad(f, argnums=1), jnp.ones((2, 4)), jnp.ones((4, 4)))
        for f in (loss, jax.checkpoint(loss))
    )
    assert rematerialized == plain + 2 * 2 * 4 * 4


def test_every_shard_counts():
    f = jax.shard_map(
        lambda x: x @ x.T,
        mesh=device_mesh(data=4, tensor=2),
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec("data"),
    )
    # Four parts of two rows, each on two devices.
    assert flops(f, jnp.ones((8, 3))) == 8 * 2 * 2 * 3 * 2


def test_a_kernel_counts_as_the_plain_branch_of_its_conditional():
    from jax.experimental import pallas as pl

    def kernel(x, out):
        out[...] = x[...] @ x[...]

    def fast(x):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    program = (
        jax.jit(lambda x: jax.lax.platform_dependent(x, tpu=fast, default=lambda x: x @ x))
        .trace(jnp.ones((4, 4)))
        .jaxpr
    )
    assert (
        matmul_flops(program) == 2 * 4**3
        and matmul_flops(program, attended_fraction=0.25) == 2 * 4**3 / 4
    )


def test_a_row_attends_to_about_half_of_itself():
    config = tiny_policy(layers=2).config
    assert visible_pair_fraction(config, 4) == (1 + 2 + 3 + 4) / 16
    windowed = dataclasses.replace(config, window=2, windowed=(True, False))
    assert visible_pair_fraction(windowed, 4) == ((1 + 2 + 2 + 2) + (1 + 2 + 3 + 4)) / 2 / 16


@pytest.mark.slow
def test_flops_of_a_decoder_equal_its_estimate_and_about_xlas_count():
    """One layer, a loop of one iteration: XLA counts loops once.

    Attention is dense here, so it computes twice the visible pairs.
    """
    length = 32
    shape = {"layers": 1, "width": 64, "hidden": 256, "heads": 4, "kv_heads": 2, "head_size": 16}
    policy = tiny_policy(512, **shape, saved_activations=None)
    ids = jax.ShapeDtypeStruct((4, length), jnp.int32)
    params = jax.eval_shape(policy.init, jax.random.key(0))

    def loss(params, tokens, positions, segments):
        hidden = policy.apply(
            params, PolicyInputs(tokens=tokens, positions=positions, segment_ids=segments)
        ).hidden
        return jnp.sum(jax.nn.log_softmax(policy.logits(params, hidden))[..., 0])

    traced = jax.jit(jax.grad(loss)).trace(params, ids, ids, ids)
    analysis = traced.lower().compile().cost_analysis()
    assert analysis is not None
    ours, xlas = matmul_flops(traced.jaxpr), analysis["flops"]
    assert ours <= xlas < 1.15 * ours  # XLA also counts other operations than products
    sizes = estimate_memory(policy, MeshConfig(1, 1, 1, 1), length, "cpu")
    # Masked pairs: forward, and twice that backward.
    dense = 3 * 4 * 4 * 16 * length * (1 - visible_pair_fraction(policy.config, length))
    assert ours == pytest.approx(4 * length * (sizes.training_flops + dense), rel=0.01)
