"""What the learner and the engine cost on a TPU, from compiling for described chips: no TPU is needed, only libtpu.

    python benchmarks/tpu_compile.py loss                                    # one v5e chip: log-probs and entropy, forward and backward
    python benchmarks/tpu_compile.py update --fsdp 4 --tensor 4              # v5e:4x4: one whole update of a decoder like Qwen3-0.6B
    python benchmarks/tpu_compile.py engine --tensor 8                       # v5e:4x4: prefill, decode and row copies of Qwen3-8B

Each prints one line of JSON, and fails where a bound that it names does not hold.
"""

import argparse
import dataclasses
import json
import math
import os
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from agentrl_jax.batch import Batch
from agentrl_jax.decoding import cache_sharding, compile_programs
from agentrl_jax.learner import Learner, token_logp
from agentrl_jax.models.decoder import Decoder, DecoderConfig
from agentrl_jax.models.presets import qwen3_8b
from agentrl_jax.models.rope import Rope
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Cache, Inputs, Output
from agentrl_jax.record import record
from agentrl_jax.sampling import Board
from agentrl_jax.sharding import MeshConfig, Names, is_names, partition, replicated
from agentrl_jax.topology import collectives, described_mesh, gathered_stacks, memory

VOCABULARY = 151_936
QWEN3 = DecoderConfig(
    layers=28, width=1024, hidden=3072, heads=16, kv_heads=8, head_size=128,
    qk_norm=True, rope=Rope(theta=1_000_000.0), compute_dtype="bfloat16", kept=(),
)  # fmt: skip


@record
class Rows:
    """What `Learner.update` takes: a batch, here of shapes alone."""

    batch: Batch


class HeadOnly(Decoder):
    """A decoder whose hidden states are parameters, so that a program holds the loss alone."""

    def apply(self, params: Any, inputs: Inputs, cache: Cache | None = None, key: Array | None = None) -> Output:
        return Output(hidden=params["hidden"])


def shapes(rows: int, length: int) -> Batch:
    """A batch of shapes."""
    whole, real, mask = (jax.ShapeDtypeStruct((rows, length), dtype) for dtype in (jnp.int32, jnp.float32, jnp.bool_))
    kinds: dict[str, Any] = dict.fromkeys(("tokens", "positions", "segment_ids", "turns", "version"), whole)
    return Batch(**kinds, action_mask=mask, sampler_logp=real, temperature=real, weight=real)  # type: ignore[arg-type]


def likelihood(logp: Array, entropy: Array, batch: Any) -> tuple[Array, dict[str, Array]]:
    return -logp - 0.01 * entropy, {"logp": logp}


def loss(args: argparse.Namespace) -> dict[str, Any]:
    """Temporary memory of the loss and its gradient, against float32 logits of the whole batch. Fails at a tenth of them."""
    mesh = described_mesh("v5e:1x1", MeshConfig())
    policy = HeadOnly(QWEN3, VOCABULARY)
    everywhere = replicated(mesh)
    params = {
        "embedding": jax.ShapeDtypeStruct((VOCABULARY, QWEN3.width), jnp.float32, sharding=everywhere),
        "hidden": jax.ShapeDtypeStruct((args.rows, args.length, QWEN3.width), jnp.bfloat16, sharding=everywhere),
    }
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), shapes(args.rows, args.length))

    def objective(params: Any, batch: Batch) -> Array:
        logp, entropy = token_logp(policy, params, batch)
        return jnp.sum(batch.weight * (logp + 0.01 * entropy))

    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.value_and_grad(objective)).lower(params, batch).compile()
    whole, held = args.rows * args.length * VOCABULARY * 4, memory(compiled)
    assert held.temporary < 0.1 * whole, f"the loss takes {held.temporary:,} bytes, a tenth of the logits is {whole // 10:,}"
    return {"temporary": held.temporary, "logits": whole, "share": round(held.temporary / whole, 4)}


def update(args: argparse.Namespace) -> dict[str, Any]:
    """Memory of one update on each chip, and what moves between them. Fails where layers' weights are gathered all at once."""
    mesh = described_mesh(args.topology, MeshConfig(data=-1, fsdp=args.fsdp, tensor=args.tensor))
    policy = dataclasses.replace(QWEN3, layers=args.layers).build(VOCABULARY)
    learner = Learner(policy, AdamWConfig().build(1000), likelihood, mesh)
    report: dict[str, Any] = {"topology": args.topology, "mesh": dict(mesh.shape), "rows": args.rows, "length": args.length}
    for name, lowered in zip(("gradient", "optimizer"), learner.lowered(Rows(batch=shapes(args.rows, args.length)))):
        compiled = lowered.compile()
        hlo = compiled.as_text() or ""
        whole = gathered_stacks(hlo, policy, mesh)
        assert not whole, f"weights of all layers are gathered at once: {whole}"
        moved = [{**dataclasses.asdict(x), "shapes": [list(shape) for shape in x.shapes]} for x in collectives(hlo)[: args.show]]
        report[name] = {**dataclasses.asdict(memory(compiled)), "total": memory(compiled).total, "collectives": moved}
    return report


class Named:
    """Logical axes that `Policy.unstack` can index like an array."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def __getitem__(self, layer: int) -> "Named":
        return Named(self.names[1:])


def engine(args: argparse.Namespace) -> dict[str, Any]:
    """Memory of the engine's programs on each chip, and what moves between them. Fails where a whole cache is exchanged."""
    mesh = described_mesh(args.topology, MeshConfig(data=-1, tensor=args.tensor))
    config = dataclasses.replace(qwen3_8b()[0], param_dtype="bfloat16", compute_dtype="bfloat16")
    policy, rows = config.build(VOCABULARY), NamedSharding(mesh, PartitionSpec("data"))
    with jax.set_mesh(mesh):
        weights = jax.eval_shape(lambda key: policy.unstack(policy.init(key)), jax.random.key(0))
        names = policy.unstack(jax.tree.map(Named, policy.axes(), is_leaf=is_names))

    def placed(x: Any, sharding: Any) -> Any:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

    params = jax.tree.map(lambda x, n: placed(x, NamedSharding(mesh, partition(mesh, n.names, x.shape))), weights, names)
    empty = jax.eval_shape(lambda: policy.init_cache(args.rows, args.length))
    cache = jax.tree.map(lambda x: placed(x, cache_sharding(mesh, empty)), empty)
    board, row = Board(args.rows), jax.ShapeDtypeStruct((args.rows,), jnp.int32, sharding=rows)
    ints, floats = placed(board.ints, rows), placed(board.floats, rows)
    tokens = jax.ShapeDtypeStruct((args.rows, args.chunk), jnp.int32, sharding=rows)
    parts, number = mesh.shape["data"], jax.ShapeDtypeStruct((), jnp.int32)
    moves = jax.ShapeDtypeStruct((parts, 3, args.rows // parts), jnp.int32, sharding=rows)
    counts = jax.ShapeDtypeStruct((parts, 3), jnp.int32, sharding=rows)
    programs = compile_programs(policy, mesh, cache, args.burst)
    lowered = {
        "prefill": programs.prefill.lower(params, cache, row, tokens, row, row, None),  # type: ignore[attr-defined]
        "decode": programs.decode.lower(params, cache, ints, floats, number, number),  # type: ignore[attr-defined]
        "move": programs.move.lower(cache, cache, moves, moves, counts),  # type: ignore[attr-defined]
    }
    report: dict[str, Any] = {"topology": args.topology, "mesh": dict(mesh.shape), "rows": args.rows, "length": args.length}
    layer = math.prod(cache.keys[0].sharding.shard_shape(cache.keys[0].shape)) * 2
    for name, program in lowered.items():
        compiled = program.compile()
        moved = collectives(compiled.as_text() or "")
        copied = [x for x in moved if x.kind != "all-reduce" and x.bytes >= layer]  # sums of activations are what tensor is paid with
        assert not copied, f"a layer's cache is exchanged: {copied[0]}"
        shown = [{**dataclasses.asdict(x), "shapes": [list(shape) for shape in x.shapes]} for x in moved[: args.show]]
        report[name] = {**dataclasses.asdict(memory(compiled)), "total": memory(compiled).total, "collectives": shown}
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("loss")
    one.set_defaults(run=loss)
    one.add_argument("--rows", type=int, default=4)
    one.add_argument("--length", type=int, default=4096)
    many = commands.add_parser("update")
    many.set_defaults(run=update)
    many.add_argument("--topology", default="v5e:4x4")
    many.add_argument("--fsdp", type=int, default=4)
    many.add_argument("--tensor", type=int, default=4)
    many.add_argument("--rows", type=int, default=16)
    many.add_argument("--length", type=int, default=4096)
    many.add_argument("--layers", type=int, default=QWEN3.layers)
    many.add_argument("--show", type=int, default=40, help="how many of the largest exchanges to list")
    sampler = commands.add_parser("engine")
    sampler.set_defaults(run=engine)
    sampler.add_argument("--topology", default="v5e:4x4")
    sampler.add_argument("--tensor", type=int, default=8)
    sampler.add_argument("--rows", type=int, default=64)
    sampler.add_argument("--length", type=int, default=8192)
    sampler.add_argument("--chunk", type=int, default=256)
    sampler.add_argument("--burst", type=int, default=32)
    sampler.add_argument("--show", type=int, default=6)
    args = parser.parse_args()
    print(json.dumps(args.run(args)))


if __name__ == "__main__":
    main()
