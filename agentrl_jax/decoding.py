"""The compiled programs of sampling: prefill a chunk of prompts, decode a burst of tokens, move rows."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.policy import Cache, Inputs, Params, Policy
from agentrl_jax.record import AnyArray, record
from agentrl_jax.sampling import FEED, Board, Knobs, sample
from agentrl_jax.sharding import partition


@record
class Burst:
    """Tokens written: row b's are in the columns from `fed[b]` to `fed[b] + written[b]`."""

    tokens: Int[AnyArray, "B burst"]
    logp: Float[AnyArray, "B burst"]
    entropy: Float[AnyArray, "B burst"]
    alternatives: Int[AnyArray, "B burst k"]  # the k likeliest tokens, best first
    alternative_logp: Float[AnyArray, "B burst k"]
    fed: Int[AnyArray, "B"]
    written: Int[AnyArray, "B"]


def prefill(
    policy: Policy, params: Params, cache: Cache, rows: Int[Array, "B"], tokens: Int[Array, "B C"], start: Int[Array, "B"],
    count: Int[Array, "B"], images: tuple[Float[Array, "B C D"], Bool[Array, "B C"]] | None = None,
) -> Cache:  # fmt: skip
    """Write the keys and values of `count` tokens from position `start` on into some `rows` of the cache, or all of them in order.

    A row past the end is none. `images` stand in for some of the tokens' embeddings.
    """
    columns = jnp.arange(tokens.shape[1])[None]
    embeddings, embedded = images or (None, None)
    inputs = Inputs(
        tokens=tokens, positions=start[:, None] + columns, segment_ids=(columns < count[:, None]).astype(jnp.int32),
        embeddings=embeddings, embedded=embedded,
    )  # fmt: skip
    everyone = len(rows) == cache.keys[0].shape[0]
    some = cache if everyone else jax.tree.map(lambda x: x.at[rows].get(mode="clip"), cache)
    out = policy.apply(params, inputs, some).cache
    assert out is not None
    return out if everyone else jax.tree.map(lambda x, new: x.at[rows].set(new, mode="drop", unique_indices=True), cache, out)


def decode(
    policy: Policy, longest: int, alternatives: int, in_step: bool, params: Params, cache: Cache, ints: Int[Array, "B ints"],
    floats: Float[Array, "B 3"], least: Int[Array, ""], most: Int[Array, ""],
) -> tuple[Cache, Burst]:  # fmt: skip
    """Up to `most` (at most `longest`) tokens for every live row; from `least` on it ends as soon as some row has.

    Parts of the mesh's data axis end on their own, or `in_step` where each step is computed by several devices: a part that has
    ended could not take its share of what the compiler exchanges among all of them.
    """
    start, rows = Board.read(ints, floats), ints.shape[0]
    live_at_start = start.left > 0
    blank, wide = jnp.zeros((rows, longest), jnp.float32), jnp.zeros((rows, longest, alternatives), jnp.float32)
    none = jnp.zeros_like(start.left)
    burst = Burst(
        tokens=blank.astype(jnp.int32), logp=blank, entropy=blank, alternatives=wide.astype(jnp.int32), alternative_logp=wide,
        fed=none, written=none,
    )  # fmt: skip

    def goes_on(carry: tuple) -> Array:
        step, knobs, _, _ = carry
        ended, live = jnp.any(live_at_start & (knobs.left == 0)), jnp.any(knobs.left > 0)
        if in_step:
            ended, live = (jax.lax.pmax(x.astype(jnp.int32), "data") > 0 for x in (ended, live))
        return (step < most) & live & ~((step >= least) & ended)

    def write(carry: tuple) -> tuple:
        step, knobs, cache, out = carry
        live = knobs.left > 0
        inputs = Inputs(tokens=knobs.last[:, None], positions=knobs.length[:, None], segment_ids=live.astype(jnp.int32)[:, None])
        output = policy.apply(params, inputs, cache)
        new = sample(policy.logits(params, output.hidden[:, 0]), knobs, alternatives)
        fed = live & (knobs.waiting > 0)
        given = jnp.take_along_axis(knobs.feed, jnp.clip(FEED - knobs.waiting, 0, FEED - 1)[:, None], axis=1)[:, 0]
        wrote, stopped = live & ~fed, jnp.any(new.token[:, None] == knobs.stops, axis=-1)
        one = wrote.astype(jnp.int32)
        knobs = Knobs(
            last=jnp.where(fed, given, jnp.where(wrote, new.token, knobs.last)),
            length=knobs.length + live.astype(jnp.int32),
            left=jnp.where(wrote, jnp.where(stopped, 0, knobs.left - 1), knobs.left),
            written=knobs.written + one,
            waiting=knobs.waiting - fed.astype(jnp.int32),
            feed=knobs.feed, key=knobs.key, temperature=knobs.temperature, top_k=knobs.top_k, top_p=knobs.top_p, min_p=knobs.min_p,
            stops=knobs.stops,
        )  # fmt: skip

        def put(column: Array, value: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(column, value, step, axis=1)

        out = Burst(
            tokens=put(out.tokens, new.token), logp=put(out.logp, new.logp), entropy=put(out.entropy, new.entropy),
            alternatives=put(out.alternatives, new.alternatives), alternative_logp=put(out.alternative_logp, new.alternative_logp),
            fed=out.fed + fed.astype(jnp.int32), written=out.written + one,
        )  # fmt: skip
        return step + 1, knobs, output.cache, out

    _, _, cache, out = jax.lax.while_loop(goes_on, write, (jnp.int32(0), start, cache, burst))
    return cache, out


def move(
    cache: Cache, parked: Cache, source: Int[Array, "1 3 N"], target: Int[Array, "1 3 N"], count: Int[Array, "1 3"]
) -> tuple[Cache, Cache]:
    """Copy rows to parked places, then rows to rows, then parked places to rows: `count` of each, one after the other."""

    def phase(k: int, read: list[Array] | None, written: list[Array]) -> list[Array]:
        """The k-th copies; `read` None: from what is written."""

        def one(carry: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
            i, arrays = carry
            rows = [jax.lax.dynamic_index_in_dim(x, source[0, k, i]) for x in (arrays if read is None else read)]
            return i + 1, [jax.lax.dynamic_update_slice_in_dim(x, row, target[0, k, i], axis=0) for x, row in zip(arrays, rows)]

        return jax.lax.while_loop(lambda carry: carry[0] < count[0, k], one, (jnp.int32(0), written))[1]

    here, there = ([*x.keys, *x.values] for x in (cache, parked))
    some = there[0].shape[0] > 0
    there = phase(0, here, there) if some else there
    here = phase(1, None, here)
    here = phase(2, there, here) if some else here
    layers = len(cache.keys)
    return tuple(Cache(keys=tuple(x[:layers]), values=tuple(x[layers:]), span=old.span) for x, old in ((here, cache), (there, parked)))  # type: ignore


@dataclass(frozen=True)
class Programs:
    """The programs over a mesh: every part of its `data` axis has rows of its own and loops on its own.

    prefill(params, cache, rows, tokens, start, count, images) -> cache
    decode(params, cache, ints, floats, least, most) -> cache, Burst
    move(cache, parked, source, target, count) -> cache, parked

    One compilation of each for every span of the cache.
    """

    prefill: Callable[..., Cache]
    decode: Callable[..., tuple[Cache, Burst]]
    move: Callable[..., tuple[Cache, Cache]]


def cache_sharding(mesh: Mesh, cache: Any) -> NamedSharding:
    """Of each array of a cache: rows over `data`, key heads over `tensor`."""
    kv_heads = partition(mesh, ("kv_heads",), cache.keys[0].shape[1:2])
    return NamedSharding(mesh, PartitionSpec("data", *kv_heads))


def compile_programs(policy: Policy, mesh: Mesh, cache: Cache, longest: int, alternatives: int = 0) -> Programs:
    """The programs, jitted, with caches donated; `cache` may be shapes alone."""
    data, whole = PartitionSpec("data"), PartitionSpec()
    in_step = mesh.size > mesh.shape["data"]
    rows, copied, layout = NamedSharding(mesh, data), NamedSharding(mesh, whole), cache_sharding(mesh, cache)

    def per_part(fn: Callable[..., Any], given: tuple[PartitionSpec, ...], made: Any) -> Callable[..., Any]:
        return jax.shard_map(fn, mesh=mesh, in_specs=given, out_specs=made, axis_names={"data"}, check_vma=False)

    return Programs(
        prefill=jax.jit(
            per_part(functools.partial(prefill, policy), (whole, data, data, data, data, data, data), data),
            in_shardings=(None, layout, rows, rows, rows, rows, rows), out_shardings=layout, donate_argnums=1,
        ),
        decode=jax.jit(
            per_part(
                functools.partial(decode, policy, longest, alternatives, in_step), (whole, data, data, data, whole, whole), (data, data)
            ),
            in_shardings=(None, layout, rows, rows, copied, copied), out_shardings=(layout, rows), donate_argnums=1,
        ),
        move=jax.jit(
            per_part(move, (data, data, data, data, data), (data, data)),
            in_shardings=(layout, layout, rows, rows, rows), out_shardings=(layout, layout), donate_argnums=(0, 1),
        ),
    )  # fmt: skip
