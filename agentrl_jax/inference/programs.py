"""`Programs`: what an engine compiles: prefill a chunk of prompts, decode, copy KV slots."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.distributed.sharding import partition_spec
from agentrl_jax.inference.decode_program import DecodeChunk, decode
from agentrl_jax.policy import KVCache, Params, Policy, PolicyInputs
from agentrl_jax.pytree import AnyArray, pytree_dataclass


@pytree_dataclass
class ChunkImages:
    """What images change about the tokens of a prefill program; see `PolicyInputs`."""

    embeddings: Float[AnyArray, "B C E"]
    embedding_mask: Bool[AnyArray, "B C"]
    rope_positions: Int[AnyArray, "B 3 C"] | None
    visible_until: Int[AnyArray, "B C"] | None

    def inputs(self) -> dict[str, Any]:
        """The fields of `PolicyInputs`."""
        rope = self.rope_positions
        return {
            "embeddings": self.embeddings,
            "embedding_mask": self.embedding_mask,
            "rope_positions": None if rope is None else jnp.moveaxis(jnp.asarray(rope), 1, 0),
            "visible_until": self.visible_until,
        }


def prefill(
    policy: Policy,
    params: Params,
    cache: KVCache,
    rows: Int[Array, "B"],
    tokens: Int[Array, "B C"],
    start: Int[Array, "B"],
    counts: Int[Array, "B"],
    images: ChunkImages | None = None,
) -> tuple[KVCache, Int[Array, "B"]]:
    """Write keys and values of `counts` tokens from position `start` on into `rows` of the cache.

    With as many `rows` as the cache has, they are all rows in order; rows past the end are ignored.
    The second result is each row's length: it can be waited for when the next program has taken the
    cache.
    """
    columns = jnp.arange(tokens.shape[1])[None]
    inputs = PolicyInputs(
        tokens=tokens,
        positions=start[:, None] + columns,
        segment_ids=(columns < counts[:, None]).astype(jnp.int32),
        **({} if images is None else images.inputs()),
    )
    all_rows = len(rows) == cache.keys[0].shape[0]
    selected = cache if all_rows else jax.tree.map(lambda x: x.at[rows].get(mode="clip"), cache)
    out = policy.apply(params, inputs, selected).cache
    assert out is not None
    if not all_rows:
        out = jax.tree.map(
            lambda x, new: x.at[rows].set(new, mode="drop", unique_indices=True), cache, out
        )
    return out, start + counts


def copy_slots(
    cache: KVCache,
    parked_cache: KVCache,
    source: Int[Array, "1 3 N"],
    target: Int[Array, "1 3 N"],
    counts: Int[Array, "1 3"],
) -> tuple[KVCache, KVCache]:
    """Copy rows to parked slots, then rows to rows, then parked slots to rows.

    `counts` of each kind, one after the other; `source` and `target` are indices within the kind.
    """

    def phase(k: int, read: list[Array] | None, written: list[Array]) -> list[Array]:
        """The copies of kind k; `read` None: `written` is the source too."""

        def copy_one(carry: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
            i, arrays = carry
            sources = arrays if read is None else read
            slots = [jax.lax.dynamic_index_in_dim(x, source[0, k, i]) for x in sources]
            return i + 1, [
                jax.lax.dynamic_update_slice_in_dim(x, slot, target[0, k, i], axis=0)
                for x, slot in zip(arrays, slots)
            ]

        return jax.lax.while_loop(
            lambda carry: carry[0] < counts[0, k], copy_one, (jnp.int32(0), written)
        )[1]

    rows, parked = ([*x.keys, *x.values] for x in (cache, parked_cache))
    has_parked = parked[0].shape[0] > 0
    parked = phase(0, rows, parked) if has_parked else parked
    rows = phase(1, None, rows)
    rows = phase(2, parked, rows) if has_parked else rows
    layers = len(cache.keys)
    return tuple(
        KVCache(
            keys=tuple(x[:layers]), values=tuple(x[layers:]), attention_length=old.attention_length
        )
        for x, old in ((rows, cache), (parked, parked_cache))
    )  # type: ignore


@dataclass(frozen=True)
class Programs:
    """The programs over a mesh; every shard of its `data` axis has its own rows and loops.

    prefill(params, cache, rows, tokens, start, counts, images) -> cache, lengths
    decode(params, cache, ints, floats, min_steps, max_steps) -> cache, DecodeChunk
    copy_slots(cache, parked_cache, source, target, counts) -> cache, parked_cache

    Each is compiled once for every attention length.
    """

    prefill: Callable[..., tuple[KVCache, jax.Array]]
    decode: Callable[..., tuple[KVCache, DecodeChunk]]
    copy_slots: Callable[..., tuple[KVCache, KVCache]]


def cache_sharding(mesh: Mesh, cache: Any) -> NamedSharding:
    """The sharding of each array of a cache: rows over `data`, key heads over `tensor`."""
    kv_heads = partition_spec(mesh, ("kv_heads",), cache.keys[0].shape[1:2])
    return NamedSharding(mesh, PartitionSpec("data", *kv_heads))


def compile_programs(
    policy: Policy,
    mesh: Mesh,
    cache: KVCache,
    max_decode_steps: int,
    alternatives: int = 0,
    guesses: int = 0,
) -> Programs:
    """The programs, jitted, with donated caches; `cache` may consist of shapes."""
    data, replicated = PartitionSpec("data"), PartitionSpec()
    sync_shards = mesh.size > mesh.shape["data"]
    rows, scalar = NamedSharding(mesh, data), NamedSharding(mesh, replicated)
    layout = cache_sharding(mesh, cache)
    per_shard = functools.partial(per_data_shard, mesh)
    programs = Programs(
        prefill=jax.jit(
            per_shard(
                functools.partial(prefill, policy),
                (replicated, data, data, data, data, data, data),
                (data, data),
            ),
            in_shardings=(None, layout, rows, rows, rows, rows, rows),
            out_shardings=(layout, rows),
            donate_argnums=1,
        ),
        decode=jax.jit(
            per_shard(
                functools.partial(
                    decode, policy, max_decode_steps, alternatives, guesses, sync_shards
                ),
                (replicated, data, data, data, replicated, replicated),
                (data, data),
            ),
            in_shardings=(None, layout, rows, rows, scalar, scalar),
            out_shardings=(layout, rows),
            donate_argnums=1,
        ),
        copy_slots=jax.jit(
            per_shard(copy_slots, (data, data, data, data, data), (data, data)),
            in_shardings=(layout, layout, rows, rows, rows),
            out_shardings=(layout, layout),
            donate_argnums=(0, 1),
        ),
    )
    return Programs(
        *(
            put_inputs_first(program, rows)
            for program in (programs.prefill, programs.decode, programs.copy_slots)
        )
    )


def per_data_shard(
    mesh: Mesh, fn: Callable[..., Any], in_specs: tuple[PartitionSpec, ...], out_specs: Any
) -> Callable[..., Any]:
    """`fn` of each shard of the mesh's data axis alone."""
    return jax.shard_map(
        fn,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=out_specs,
        axis_names={"data"},
        check_vma=False,
    )


def put_inputs_first(program: Callable[..., Any], rows: NamedSharding) -> Callable[..., Any]:
    """The program with its host arrays put on the devices first, where that is needed.

    With several processes jit shards no host arrays, not even over its own devices.
    """
    if jax.process_count() == 1 or rows.is_fully_replicated:
        return program

    def call(*args: Any) -> Any:
        return program(
            *jax.tree.map(
                lambda x: jax.device_put(x, rows) if isinstance(x, np.ndarray) else x, args
            )
        )

    return call
