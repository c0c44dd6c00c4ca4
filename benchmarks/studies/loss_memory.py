"""Temporary memory of the loss and its gradient on a v5e chip, against float32 logits of the batch.

    python benchmarks/studies/loss_memory.py

Compiled for a described chip: it needs libtpu but no TPU. Prints one line of JSON, and fails where
the memory is a tenth of the logits or more.
"""

import argparse
import json
import os
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from agentrl_jax.compiler.topology import program_memory, topology_mesh
from agentrl_jax.distributed.sharding import MeshConfig, replicated_sharding
from agentrl_jax.learner.chunked_logp import token_logp
from agentrl_jax.learner.packing import Batch, pack
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.policy import KVCache, PolicyInputs, PolicyOutput

VOCABULARY, WIDTH = 151_936, 1024  # Qwen3-0.6B's


class HeadOnly(Decoder):
    """A decoder whose hidden states are parameters, so that a program has only the loss."""

    def apply(
        self,
        params: Any,
        inputs: PolicyInputs,
        cache: KVCache | None = None,
        key: Array | None = None,
    ) -> PolicyOutput:
        return PolicyOutput(hidden=params["hidden"])


def loss_memory(rows: int, length: int) -> dict[str, Any]:
    mesh = topology_mesh("v5e:1x1", MeshConfig())
    policy = HeadOnly(DecoderConfig(width=WIDTH), VOCABULARY)
    everywhere = replicated_sharding(mesh)

    def sharded_shape(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere)

    params = {
        "embedding": jax.ShapeDtypeStruct((VOCABULARY, WIDTH), jnp.float32, sharding=everywhere),
        "hidden": jax.ShapeDtypeStruct((rows, length, WIDTH), jnp.bfloat16, sharding=everywhere),
    }
    batch = jax.tree.map(
        sharded_shape, pack((), length, rows).to_batch(np.zeros((rows, length), np.float32))
    )

    def objective(params: Any, batch: Batch) -> Array:
        logp, entropy = token_logp(policy, params, batch)
        return jnp.sum(batch.weight * (logp + 0.01 * entropy))

    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.value_and_grad(objective)).lower(params, batch).compile()
    full, memory = rows * length * VOCABULARY * 4, program_memory(compiled)
    assert memory.temporary < 0.1 * full, (
        f"the loss takes {memory.temporary:,} bytes, a tenth of the logits is {full // 10:,}"
    )
    return {
        "temporary": memory.temporary,
        "logits": full,
        "share": round(memory.temporary / full, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=4096)
    args = parser.parse_args()
    print(json.dumps(loss_memory(args.rows, args.length)))


if __name__ == "__main__":
    main()
