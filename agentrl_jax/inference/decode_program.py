"""The decode program: a loop that samples one token per step for every live row."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.inference.prompt_lookup import CheckedTokens, check_tokens, guess_tokens
from agentrl_jax.inference.sampling import (
    MAX_FED_TOKENS,
    RowSamplingParams,
    SampledTokens,
    SamplerState,
    is_stop_id,
    sample,
)
from agentrl_jax.policy import KVCache, Params, Policy, PolicyInputs, image_format
from agentrl_jax.pytree import AnyArray, pytree_dataclass


@pytree_dataclass
class DecodeChunk:
    """Tokens of one decode program.

    Those of row b are in columns `num_fed[b]` to `num_fed[b] + num_written[b]`.
    """

    tokens: Int[AnyArray, "B steps"]
    logp: Float[AnyArray, "B steps"]
    entropy: Float[AnyArray, "B steps"]
    alternatives: Int[AnyArray, "B steps k"]  # the k likeliest tokens, best first
    alternative_logp: Float[AnyArray, "B steps k"]
    num_fed: Int[AnyArray, "B"]  # steps that fed prompt tokens
    num_written: Int[AnyArray, "B"]  # steps that sampled


def decode(
    policy: Policy,
    buffer_steps: int,
    alternatives: int,
    guesses: int,
    sync_shards: bool,
    params: Params,
    cache: KVCache,
    ints: Int[Array, "B ints"],
    floats: Float[Array, "B 3"],
    min_steps: Int[Array, ""],
    max_steps: Int[Array, ""],
) -> tuple[KVCache, DecodeChunk]:
    """Up to `max_steps` tokens for every live row; after `min_steps` it ends as soon as a row has.

    Shards of the data axis end independently. With `sync_shards`, where several devices compute
    each step, they end together: a shard that has ended could not take part in the collectives that
    the compiler inserts among all of them.

    Args:
        policy: the model.
        buffer_steps: `max_steps` is at most this.
        alternatives: how many of the likeliest tokens are recorded.
        guesses: tokens that a step looks up and checks, see `prompt_lookup`.
        sync_shards: see above.
        params: the weights.
        cache: the KV cache of the rows.
        ints: with `floats`, a packed `SamplerState`.
        floats: see `ints`.
        min_steps: steps after which the end of one row ends the program.
        max_steps: steps after which it ends anyway.
    """
    start = SamplerState.unpack(ints, floats)
    live_at_start = start.remaining > 0

    def should_continue(loop: _DecodeLoop) -> Array:
        ended = jnp.any(live_at_start & (loop.rows.remaining == 0))
        live = jnp.any(loop.rows.remaining > 0)
        if sync_shards:
            ended, live = (jax.lax.pmax(x.astype(jnp.int32), "data") > 0 for x in (ended, live))
        return (loop.step < max_steps) & live & ~((loop.step >= min_steps) & ended)

    columns = buffer_steps * (1 + guesses) + (MAX_FED_TOKENS if guesses else 0)
    empty = _empty_chunk(len(ints), columns, alternatives)
    step = (
        functools.partial(_guess_step, policy, alternatives, guesses, params)
        if guesses
        else functools.partial(_decode_step, policy, alternatives, params)
    )
    history = SamplerState.unpack_history(ints)
    loop = jax.lax.while_loop(
        should_continue, step, _DecodeLoop(jnp.int32(0), start, cache, empty, history)
    )
    return loop.cache, loop.chunk


class _DecodeLoop(NamedTuple):
    """What a step of the decode program changes."""

    step: Int[Array, ""]
    rows: RowSamplingParams
    cache: KVCache
    chunk: DecodeChunk
    history: Int[Array, "B history"]  # of no columns where nothing is looked up


def _decode_step(
    policy: Policy, alternatives: int, params: Params, loop: _DecodeLoop
) -> _DecodeLoop:
    """Compute the logits of every row's last token; each live row is fed or samples a token."""
    state = loop.rows
    live = state.remaining > 0
    inputs = PolicyInputs(
        tokens=state.last_token[:, None],
        positions=state.length[:, None],
        segment_ids=live.astype(jnp.int32)[:, None],
        rope_positions=_rope_positions(policy, state),
    )
    output = policy.apply(params, inputs, loop.cache)
    new = sample(policy.logits(params, output.hidden[:, 0]), state, alternatives)
    fed = live & (state.pending > 0)
    wrote = live & ~fed
    chunk = _write_column(loop.chunk, loop.step, new, fed, wrote)
    counts = fed.astype(jnp.int32), wrote.astype(jnp.int32)
    assert output.cache is not None
    return _DecodeLoop(
        step=loop.step + 1,
        rows=_advance(state, new.token, *counts),
        cache=output.cache,
        chunk=chunk,
        history=loop.history,
    )


def _guess_step(
    policy: Policy, alternatives: int, guesses: int, params: Params, loop: _DecodeLoop
) -> _DecodeLoop:
    """As `_decode_step`, of each row's last token and what is looked up for it."""
    state, history = loop.rows, loop.history
    guessed = guess_tokens(state, history, guesses)
    columns = jnp.arange(1 + guesses)[None]
    live = jnp.asarray(state.remaining > 0)
    inputs = PolicyInputs(
        tokens=guessed.tokens,
        positions=jnp.asarray(state.length)[:, None] + columns,
        segment_ids=(live[:, None] & (columns < guessed.count[:, None])).astype(jnp.int32),
        rope_positions=_rope_positions(policy, state, 1 + guesses),
    )
    output = policy.apply(params, inputs, loop.cache)
    assert output.cache is not None
    checked = check_tokens(state, guessed, policy.logits(params, output.hidden), alternatives)
    num_written = jnp.sum(checked.is_written, axis=1, dtype=jnp.int32)
    chunk = _write_tokens(loop.chunk, checked)
    new = jnp.stack([x.token for x in checked.sampled], axis=1)
    at = jnp.asarray(state.length)[:, None] + checked.num_fed[:, None] + 1 + columns
    at = jnp.where(checked.is_written, at, history.shape[1])
    last_written = jnp.take_along_axis(new, jnp.maximum(num_written - 1, 0)[:, None], axis=1)[:, 0]
    return _DecodeLoop(
        step=loop.step + 1,
        rows=_advance(state, last_written, checked.num_fed, num_written),
        cache=output.cache,
        chunk=chunk,
        history=history.at[jnp.arange(len(at))[:, None], at].set(new, mode="drop"),
    )


def _write_tokens(chunk: DecodeChunk, checked: CheckedTokens) -> DecodeChunk:
    """The chunk with a step's tokens after those that its rows have."""
    num_fed = chunk.num_fed + checked.num_fed
    start, rows = num_fed + chunk.num_written, jnp.arange(len(num_fed))
    past_end = chunk.tokens.shape[1]
    for j, new in enumerate(checked.sampled):
        at = jnp.where(checked.is_written[:, j], start + j, past_end)

        def put(values: AnyArray, value: Array, at: Array = at) -> Array:
            return jnp.asarray(values).at[rows, at].set(value, mode="drop")

        chunk = dataclasses.replace(
            chunk,
            tokens=put(chunk.tokens, new.token),
            logp=put(chunk.logp, new.logp),
            entropy=put(chunk.entropy, new.entropy),
            alternatives=put(chunk.alternatives, new.alternatives),
            alternative_logp=put(chunk.alternative_logp, new.alternative_logp),
        )
    num_written = chunk.num_written + jnp.sum(checked.is_written, axis=1, dtype=jnp.int32)
    return dataclasses.replace(chunk, num_fed=num_fed, num_written=num_written)


def _rope_positions(
    policy: Policy, state: RowSamplingParams, columns: int = 1
) -> Int[Array, "3 B {columns}"] | None:
    """Those of the rows' last tokens, and of what follows them, with M-RoPE: equal on all axes,
    since no image follows.
    """
    f = image_format(policy)
    if f is None or not f.multi_axis_rope:
        return None
    last = jnp.asarray(state.length) + jnp.asarray(state.rope_delta)
    positions = last[:, None] + jnp.arange(columns)[None]
    return jnp.broadcast_to(positions[None], (3, *positions.shape))


def _write_column(
    chunk: DecodeChunk,
    step: Int[Array, ""],
    new: SampledTokens,
    fed: Bool[AnyArray, "B"],
    wrote: Bool[AnyArray, "B"],
) -> DecodeChunk:
    """The chunk with a step's tokens in column `step`, and the rows that it fed or sampled."""

    def put(values: AnyArray, value: Array) -> Array:
        return jax.lax.dynamic_update_index_in_dim(values, value, step, axis=1)

    return DecodeChunk(
        tokens=put(chunk.tokens, new.token),
        logp=put(chunk.logp, new.logp),
        entropy=put(chunk.entropy, new.entropy),
        alternatives=put(chunk.alternatives, new.alternatives),
        alternative_logp=put(chunk.alternative_logp, new.alternative_logp),
        num_fed=chunk.num_fed + fed.astype(jnp.int32),
        num_written=chunk.num_written + wrote.astype(jnp.int32),
    )


def _empty_chunk(rows: int, steps: int, alternatives: int) -> DecodeChunk:
    column = jnp.zeros((rows, steps), jnp.float32)
    top_column = jnp.zeros((rows, steps, alternatives), jnp.float32)
    count = jnp.zeros(rows, jnp.int32)
    return DecodeChunk(
        tokens=column.astype(jnp.int32),
        logp=column,
        entropy=column,
        alternatives=top_column.astype(jnp.int32),
        alternative_logp=top_column,
        num_fed=count,
        num_written=count,
    )


def _advance(
    state: RowSamplingParams,
    last_written: Int[Array, "B"],
    num_fed: Int[AnyArray, "B"],
    num_written: Int[AnyArray, "B"],
) -> RowSamplingParams:
    """The rows after a step in which each fed tokens of its prompt, then wrote some, of which
    `last_written` is the last.
    """
    feed_index = jnp.clip(MAX_FED_TOKENS - state.pending + num_fed - 1, 0, MAX_FED_TOKENS - 1)
    fed_token = jnp.take_along_axis(state.pending_tokens, feed_index[:, None], axis=1)[:, 0]
    left = state.remaining - num_written
    last_fed = jnp.where(num_fed > 0, fed_token, state.last_token)
    return dataclasses.replace(
        state,
        last_token=jnp.where(num_written > 0, last_written, last_fed),
        length=state.length + num_fed + num_written,
        remaining=jnp.where((num_written > 0) & is_stop_id(state, last_written), 0, left),
        written=state.written + num_written,
        pending=state.pending - num_fed,
    )
