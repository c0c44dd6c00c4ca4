"""Values of a critic at chosen tokens, at the ends of turns, and at the state before a token."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from agentrl_jax.policy import Params, TokenCritic
from agentrl_jax.pytree import AnyArray

MAX_CHUNK_VALUES = 2**25  # floats: 128 MiB of values over the vocabulary


@dataclasses.dataclass(frozen=True, eq=False)
class TokenBaseline:
    """b(s, a_<t) of each token t: a critic on the hidden state before the token, without a gradient
    to the trunk (ArCHer, arXiv:2402.19446).
    """

    critic: TokenCritic

    def init(self, key: Key[Array, ""]) -> Params:
        return self.critic.init(key)

    def axes(self) -> Any:
        return self.critic.axes()

    def apply(self, params: Params, hidden: Float[Array, "B T D"]) -> Float[Array, "..."]:
        """`[B, T]`, aligned to the tokens themselves."""
        return self.critic.apply(params, jax.lax.stop_gradient(shift_states(hidden)))


def shift_states(hidden: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """The state before each token: that of the previous token, zero for the first of a row."""
    return jnp.pad(hidden[:, :-1], ((0, 0), (1, 0), (0, 0)))


def chosen_values_and_logsumexp(
    critic: TokenCritic,
    params: Params,
    hidden: Float[Array, "*rows T D"],
    tokens: Int[AnyArray, "*rows T"],
    max_chunk_values: int = MAX_CHUNK_VALUES,
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Q of the chosen tokens, and log sum_a exp Q(a), each `[*rows, T]` (a copies axis leads);
    CQL's cross-entropy is their difference.

    Q over the vocabulary exists for one rematerialized chunk of T at a time, of about
    `max_chunk_values` values over all rows and copies, in the forward and in the backward pass.
    Rows are never cut, so they stay on their devices.
    """
    length = hidden.shape[-2]
    total = math.prod(jax.eval_shape(critic.apply, params, hidden).shape)
    size = max(1, min(length, length * max_chunk_values // total))
    chunks = -(-length // size)

    def chunk(parts: tuple[Array, Array]) -> tuple[Array, Array]:
        values = critic.apply(params, parts[0])
        chosen = jnp.broadcast_to(parts[1][..., None], values.shape)
        is_chosen = chosen == jax.lax.broadcasted_iota(jnp.int32, values.shape, values.ndim - 1)
        q = jnp.sum(jnp.where(is_chosen, values, 0.0), axis=-1)
        return q, jax.nn.logsumexp(values, axis=-1)

    if chunks == 1:
        return chunk((hidden, jnp.asarray(tokens)))

    def split(x: Array) -> Array:  # [*rows, T, ...] -> [chunks, *rows, size, ...]
        axis, pad = tokens.ndim - 1, chunks * size - length
        x = jnp.pad(x, [(0, pad if i == axis else 0) for i in range(x.ndim)])
        x = x.reshape(*x.shape[:axis], chunks, size, *x.shape[axis + 1 :])
        return jnp.moveaxis(x, axis, 0)

    def join(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, -2)
        return x.reshape(*x.shape[:-2], -1)[..., :length]

    q, log_total = jax.lax.map(jax.checkpoint(chunk), (split(hidden), split(jnp.asarray(tokens))))
    return join(q), join(log_total)


def last_positions(ids: Int[AnyArray, "B T"], count: int) -> Int[Array, "B {count}"]:
    """The last position of each of the ids 1 to `count` in its row; -1 where it does not occur.

    segment_ids 1 1 2 2 2 0, count 3  ->  1 4 -1
    """
    same = jnp.asarray(ids)[:, None, :] == jnp.arange(1, count + 1)[None, :, None]
    return jnp.max(jnp.where(same, jnp.arange(ids.shape[1])[None, None], -1), axis=-1)


def values_at_positions(
    critic: TokenCritic,
    params: Params,
    hidden: Float[Array, "B T D"],
    positions: Int[AnyArray, "B R"],
) -> Float[Array, "*copies B R"]:
    """The critic at the given tokens of each row only (the last of each turn); 0 where a position
    is -1.

    At `last_positions(segment_ids, n)` a value head is a reward model: one score a segment, at its
    last real token.
    """
    positions = jnp.asarray(positions)
    states = jnp.take_along_axis(hidden, jnp.maximum(positions, 0)[:, :, None], axis=1)
    values = critic.apply(params, states)
    return jnp.where(jnp.broadcast_to(positions >= 0, values.shape), values, 0.0)
