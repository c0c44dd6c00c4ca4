"""Temporary memory of the loss and its gradient on one v5e chip, against float32 logits of the whole batch.

    python benchmarks/loss_memory.py

Compiled for a chip that is not here: only libtpu is needed. Prints one line of JSON, and fails where it takes a tenth of the logits.
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

from agentrl_jax.batch import Batch, pack
from agentrl_jax.learner import token_logp
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.policy import Cache, Inputs, Output
from agentrl_jax.sharding import MeshConfig, replicated
from agentrl_jax.topology import described_mesh, memory

VOCABULARY, WIDTH = 151_936, 1024  # Qwen3-0.6B's


class HeadOnly(Decoder):
    """A decoder whose hidden states are parameters, so that a program holds the loss alone."""

    def apply(self, params: Any, inputs: Inputs, cache: Cache | None = None, key: Array | None = None) -> Output:
        return Output(hidden=params["hidden"])


def loss(rows: int, length: int) -> dict[str, Any]:
    mesh = described_mesh("v5e:1x1", MeshConfig())
    policy = HeadOnly(DecoderConfig(width=WIDTH), VOCABULARY)
    everywhere = replicated(mesh)

    def placed(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere)

    params = {
        "embedding": jax.ShapeDtypeStruct((VOCABULARY, WIDTH), jnp.float32, sharding=everywhere),
        "hidden": jax.ShapeDtypeStruct((rows, length, WIDTH), jnp.bfloat16, sharding=everywhere),
    }
    batch = jax.tree.map(placed, pack((), length, rows).batch(np.zeros((rows, length), np.float32)))

    def objective(params: Any, batch: Batch) -> Array:
        logp, entropy = token_logp(policy, params, batch)
        return jnp.sum(batch.weight * (logp + 0.01 * entropy))

    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.value_and_grad(objective)).lower(params, batch).compile()
    whole, held = rows * length * VOCABULARY * 4, memory(compiled)
    assert held.temporary < 0.1 * whole, f"the loss takes {held.temporary:,} bytes, a tenth of the logits is {whole // 10:,}"
    return {"temporary": held.temporary, "logits": whole, "share": round(held.temporary / whole, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=4096)
    args = parser.parse_args()
    print(json.dumps(loss(args.rows, args.length)))


if __name__ == "__main__":
    main()
