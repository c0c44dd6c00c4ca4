"""Operations counted in traced programs: by hand, against XLA's own count, against what a decoder is said to take."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from hand_made import mesh_of, minute_policy
from jax.sharding import PartitionSpec

from agentrl_jax.models.sizes import attended, sizes_of
from agentrl_jax.operations import operations
from agentrl_jax.policy import Inputs
from agentrl_jax.sharding import MeshConfig


def counted(f, *args) -> float:
    return operations(jax.jit(f).trace(*args).jaxpr)


A, B = jnp.ones((3, 4)), jnp.ones((4, 5))


def test_a_product_takes_two_operations_for_each_pair():
    assert counted(jnp.matmul, A, B) == 2 * 3 * 4 * 5
    assert counted(lambda a, b: jnp.einsum("bij,bjk->bik", a, b), jnp.ones((7, 3, 4)), jnp.ones((7, 4, 5))) == 7 * 2 * 3 * 4 * 5


def test_a_scan_counts_its_rounds_and_another_loop_one():
    square = jnp.ones((4, 4))
    one = 2 * 4**3
    assert counted(lambda x: jax.lax.scan(lambda c, _: (c @ x, None), x, None, length=6)[0], square) == 6 * one
    assert counted(lambda x: jax.lax.while_loop(lambda c: c.sum() < 9, lambda c: c @ x, x), square) == one


def test_the_dearest_branch_counts():
    square = jnp.ones((4, 4))
    assert counted(lambda x: jax.lax.cond(x.sum() > 0, lambda x: x @ x @ x, lambda x: x @ x, x), square) == 2 * 2 * 4**3


def test_what_is_computed_again_counts_again():
    def loss(x, w):
        return jnp.sum(jnp.sin(x @ w) @ w)

    plain, again = (counted(jax.grad(f, argnums=1), jnp.ones((2, 4)), jnp.ones((4, 4))) for f in (loss, jax.checkpoint(loss)))
    assert again == plain + 2 * 2 * 4 * 4


def test_every_shard_counts():
    f = jax.shard_map(lambda x: x @ x.T, mesh=mesh_of(data=4, tensor=2), in_specs=PartitionSpec("data"), out_specs=PartitionSpec("data"))
    assert counted(f, jnp.ones((8, 3))) == 8 * 2 * 2 * 3 * 2  # four parts of two rows, each on two devices


def test_a_kernel_counts_as_the_plain_branch_beside_it():
    from jax.experimental import pallas as pl

    def kernel(x, out):
        out[...] = x[...] @ x[...]

    def fast(x):
        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    program = jax.jit(lambda x: jax.lax.platform_dependent(x, tpu=fast, default=lambda x: x @ x)).trace(jnp.ones((4, 4))).jaxpr
    assert operations(program) == 2 * 4**3 and operations(program, attended=0.25) == 2 * 4**3 / 4


def test_a_row_attends_to_about_half_of_itself():
    config = minute_policy(layers=2).config
    assert attended(config, 4) == (1 + 2 + 3 + 4) / 16
    near = dataclasses.replace(config, window=2, windowed=(True, False))
    assert attended(near, 4) == ((1 + 2 + 2 + 2) + (1 + 2 + 3 + 4)) / 2 / 16


@pytest.mark.slow
def test_xla_counts_the_same_and_a_decoder_takes_what_it_is_said_to():
    """One layer, of which a loop of one round is made: XLA counts loops once. Attention is dense here, so twice what is looked at."""
    length, policy = 32, minute_policy(layers=1, width=64, hidden=256, heads=4, kv_heads=2, head_size=16, kept=None, vocabulary=512)
    whole = jax.ShapeDtypeStruct((4, length), jnp.int32)
    params = jax.eval_shape(policy.init, jax.random.key(0))

    def loss(params, tokens, positions, segments):
        hidden = policy.apply(params, Inputs(tokens=tokens, positions=positions, segment_ids=segments)).hidden
        return jnp.sum(jax.nn.log_softmax(policy.logits(params, hidden))[..., 0])

    traced = jax.jit(jax.grad(loss)).trace(params, whole, whole, whole)
    ours, theirs = operations(traced.jaxpr), (traced.lower().compile().cost_analysis() or {})["flops"]
    assert ours <= theirs < 1.15 * ours  # XLA counts what is no product too
    sizes = sizes_of(policy, MeshConfig(1, 1, 1, 1), length, "cpu")
    dense = 3 * 4 * 4 * 16 * length * (1 - attended(policy.config, length))  # forward and twice that backward, of what nobody looks at
    assert ours == pytest.approx(4 * length * (sizes.training + dense), rel=0.01)
