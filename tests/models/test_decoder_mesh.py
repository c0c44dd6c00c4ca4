"""Decoders of several families on a mesh, one row per device: log-probs and gradients equal those
of one device.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.fixtures import device_mesh

from agentrl_jax.distributed.sharding import batch_sharding, weight_shardings
from agentrl_jax.models.decoder import DecoderConfig
from agentrl_jax.models.layers import gelu
from agentrl_jax.models.moe import ExpertsConfig
from agentrl_jax.policy import PolicyInputs

VOCAB = 24
QWEN = DecoderConfig(
    layers=2, width=16, hidden=24, heads=4, kv_heads=2, head_size=8, qk_norm=True, tied_head=False
)
GEMMA = dataclasses.replace(
    QWEN,
    tied_head=True,
    norm_offset=True,
    post_norms=True,
    activation=gelu,
    embedding_scale=True,
    attention_cap=5.0,
    logit_cap=4.0,
    window=3,
    windowed=(True, False),
    mlp_bias=True,
    qkv_bias=True,
    out_bias=True,
)
SPARSE = dataclasses.replace(QWEN, experts=ExpertsConfig(4, 2, 12, balance=0.1))
CUBE = {"data": 2, "fsdp": 2, "tensor": 2}
slow = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (GEMMA, CUBE),
        pytest.param(
            QWEN, {"fsdp": 2, "tensor": 4}, marks=slow
        ),  # more tensor shards than key heads
        pytest.param(SPARSE, {"fsdp": 2, "expert": 2, "tensor": 2}, marks=slow),
    ],
)
def test_every_mesh_gives_one_devices_loss_and_gradient(
    config: DecoderConfig, sizes: dict[str, int]
):
    policy, mesh = config.build(VOCAB), device_mesh(**sizes)
    rows = sizes.get("data", 1) * sizes["fsdp"]
    random = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: jnp.asarray(random.normal(0.0, 0.3, x.shape), x.dtype),
        jax.eval_shape(policy.init, jax.random.key(0)),
    )
    tokens = random.integers(0, VOCAB, (rows, 8), np.int32)
    positions = np.broadcast_to(np.arange(8, dtype=np.int32), tokens.shape)
    inputs = PolicyInputs(tokens=tokens, positions=positions, segment_ids=np.ones_like(tokens))

    def loss(params: Any, inputs: PolicyInputs) -> Any:
        output = policy.apply(params, inputs)
        logp = jax.nn.log_softmax(policy.logits(params, output.hidden))
        return jnp.mean(jnp.sin(logp)) + (0.0 if output.aux is None else output.aux)

    want = jax.jit(jax.value_and_grad(loss))(params, inputs)
    split = jax.device_put(params, weight_shardings(mesh, policy.axes(), params))
    with jax.set_mesh(mesh):
        got = jax.jit(jax.value_and_grad(loss))(split, jax.device_put(inputs, batch_sharding(mesh)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-4), want, got)
