"""Sampling of one token per row: per-row parameters, filters, random numbers, what is recorded."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from agentrl_jax.hashed_bits import random_bits
from agentrl_jax.pytree import AnyArray, pytree_dataclass

MAX_STOP_IDS = 4  # stop ids per row
MAX_FED_TOKENS = 8  # prompt tokens that the decode program can feed before it samples
_INT_FIELDS = ("last_token", "length", "remaining", "written", "pending", "top_k", "rope_delta")
_NUM_INTS = len(_INT_FIELDS) + 2 + MAX_STOP_IDS + MAX_FED_TOKENS  # of a row, without its history


@pytree_dataclass
class RowSamplingParams:
    """The state and sampling parameters of each row; all traced, so they may change freely."""

    last_token: Int[AnyArray, "B"]  # not yet in the cache
    length: Int[AnyArray, "B"]  # tokens in the cache
    remaining: Int[AnyArray, "B"]  # tokens that the row may still sample; 0: not live
    written: Int[AnyArray, "B"]  # tokens of this call so far
    pending: Int[AnyArray, "B"]  # the last ones of `pending_tokens`, fed before sampling starts
    pending_tokens: Int[AnyArray, "B feed"]
    key: UInt32[AnyArray, "B 2"]
    temperature: Float[AnyArray, "B"]
    top_k: Int[AnyArray, "B"]
    top_p: Float[AnyArray, "B"]
    min_p: Float[AnyArray, "B"]
    stop_ids: Int[AnyArray, "B stops"]  # padded with -1
    rope_delta: Int[AnyArray, "B"]  # rotary positions less cache positions, after images (M-RoPE)


class SamplerState:
    """The parameters of all rows, packed into two host arrays.

    Transferring many small arrays to the device would cost more than sampling a token.
    """

    def __init__(self, rows: int, history: int = 0) -> None:
        """With `history` positions of each row's tokens, where earlier ones are looked up."""
        self.ints = np.zeros((rows, _NUM_INTS + history), np.int32)
        self.floats = np.ones((rows, 3), np.float32)
        self.history = self.ints[:, _NUM_INTS:]

    def set_row(
        self,
        row: int,
        tokens: np.ndarray,
        length: int,
        remaining: int,
        written: int,
        top_k: int,
        key: np.ndarray,
        stop_ids: tuple[int, ...],
        floats: tuple[float, float, float],
        rope_delta: int = 0,
    ) -> None:
        """Set one row.

        Args:
            row: the row's index.
            tokens: tokens that follow the `length` cached ones, at least one.
            length: cached tokens.
            remaining: tokens that may still be sampled.
            written: tokens of the call so far.
            top_k: 0 filters nothing.
            key: uint32 [2].
            stop_ids: at most `MAX_STOP_IDS`.
            floats: temperature, top-p and min-p.
            rope_delta: see `RowSamplingParams`.
        """
        at, feed = len(_INT_FIELDS), tokens[1:]
        self.ints[row, :at] = tokens[0], length, remaining, written, len(feed), top_k, rope_delta
        self.ints[row, at : at + 2] = key.view(np.int32)
        self.ints[row, at + 2 : at + 2 + MAX_STOP_IDS] = [
            *stop_ids,
            *[-1] * (MAX_STOP_IDS - len(stop_ids)),
        ]
        self.ints[row, _NUM_INTS - len(feed) : _NUM_INTS] = feed
        self.floats[row] = floats

    def advance(
        self,
        tokens: Int[np.ndarray, "B steps"],
        num_fed: Int[np.ndarray, "B"],
        num_written: Int[np.ndarray, "B"],
    ) -> None:
        """Bring all rows to where a decode program has left them."""
        fields = {name: self._field(name) for name in _INT_FIELDS}
        fed, wrote = np.flatnonzero(num_fed), np.flatnonzero(num_written)
        position = _NUM_INTS - fields["pending"][fed] + num_fed[fed] - 1
        fields["last_token"][fed] = self.ints[fed, position]
        fields["last_token"][wrote] = tokens[wrote, (num_fed + num_written)[wrote] - 1]
        if num_positions := self.history.shape[1]:
            for row in wrote:
                start = int(self.lengths[row] + num_fed[row]) + 1
                new = tokens[row, num_fed[row] : num_fed[row] + num_written[row]]
                self.history[row, start : start + len(new)] = new[: num_positions - start]
        fields["length"][:] += num_fed + num_written
        fields["remaining"][:] -= num_written
        fields["written"][:] += num_written
        fields["pending"][:] -= num_fed
        stops = self.ints[:, len(_INT_FIELDS) + 2 :][:, :MAX_STOP_IDS]
        stopped = (stops[wrote] == fields["last_token"][wrote, None]).any(axis=1)
        fields["remaining"][wrote[stopped]] = 0

    def _field(self, name: str) -> Int[np.ndarray, "B"]:
        """A view of one of `_INT_FIELDS`."""
        return self.ints[:, _INT_FIELDS.index(name)]

    @property
    def is_live(self) -> Bool[np.ndarray, "B"]:
        """Whether each row has tokens to sample."""
        return self._field("remaining") > 0

    @property
    def num_live(self) -> int:
        """How many rows have tokens to sample."""
        return int(np.count_nonzero(self.is_live))

    @property
    def lengths(self) -> Int[np.ndarray, "B"]:
        """The cached tokens of each row."""
        return self._field("length")

    def longest_row(self, max_steps: int) -> int:
        """The tokens of the longest live row after so many sampled tokens, or fewer at its end."""
        length, pending, remaining = map(self._field, ("length", "pending", "remaining"))
        after = length + 1 + pending + np.minimum(remaining, max_steps)
        return int(np.max(after, initial=0, where=remaining > 0))

    @staticmethod
    def unpack_history(ints: Int[Array, "B ints"]) -> Int[Array, "B history"]:
        """Each row's tokens, on the device."""
        return ints[:, _NUM_INTS:]

    @staticmethod
    def unpack(ints: Int[Array, "B ints"], floats: Float[Array, "B 3"]) -> RowSamplingParams:
        """The fields of the two arrays, on the device."""
        fields, at = {name: ints[:, i] for i, name in enumerate(_INT_FIELDS)}, len(_INT_FIELDS)
        key = jax.lax.bitcast_convert_type(ints[:, at : at + 2], jnp.uint32)
        stops = ints[:, at + 2 : at + 2 + MAX_STOP_IDS]
        feed = ints[:, _NUM_INTS - MAX_FED_TOKENS : _NUM_INTS]
        return RowSamplingParams(
            **fields,
            key=key,
            stop_ids=stops,
            pending_tokens=feed,
            temperature=floats[:, 0],
            top_p=floats[:, 1],
            min_p=floats[:, 2],
        )


def is_stop_id(rows: RowSamplingParams, token: Int[Array, "B"]) -> Bool[Array, "B"]:
    """Whether each row's token ends its call."""
    return jnp.any(token[:, None] == rows.stop_ids, axis=-1)


def filter_logp(
    logp: Float[Array, "B V"],
    top_k: Int[AnyArray, "B"],
    top_p: Float[AnyArray, "B"],
    min_p: Float[AnyArray, "B"],
) -> Float[Array, "B V"]:
    """Log-probs after top-k, top-p and min-p, each applied to the tempered distribution.

    Keeps a token if its rank < k, the probability mass before it < p, and its probability >= min_p
    times the largest one. Ties are kept. The result is normalized.
    """
    size = logp.shape[-1]
    ordered = -jnp.sort(-logp, axis=-1)
    mass_before = jnp.cumsum(jnp.exp(ordered), axis=-1) - jnp.exp(ordered)
    nucleus = jnp.sum(mass_before < top_p[:, None], axis=-1)
    count = jnp.minimum(nucleus, jnp.where(top_k > 0, top_k, size))
    lowest = jnp.take_along_axis(ordered, jnp.maximum(count - 1, 0)[:, None], axis=-1)
    floor = ordered[:, :1] + jnp.log(min_p)[:, None]
    return jax.nn.log_softmax(jnp.where(logp >= jnp.maximum(lowest, floor), logp, -jnp.inf))


@pytree_dataclass
class SampledTokens:
    """One token per row, with statistics of the distribution that it was sampled from.

    Greedy rows have log-prob and entropy 0.
    """

    token: Int[Array, "B"]
    logp: Float[Array, "B"]
    entropy: Float[Array, "B"]  # nats
    alternatives: Int[Array, "B k"]
    alternative_logp: Float[Array, "B k"]


def first_argmax(x: Float[Array, "B V"]) -> Int[Array, "B"]:
    """`argmax` over the last axis as two reductions, which CPUs vectorize better."""
    columns = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    candidates = jnp.where(x == jnp.max(x, axis=-1, keepdims=True), columns, x.shape[1] - 1)
    return jnp.min(candidates, axis=-1)


def exponential(bits: UInt32[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Standard exponential numbers from uniform bits: `-log(1 - u)`, 2^-33 <= u <= 1 - 2^-24.

    Small numbers decide which token is sampled, and `1 - u` would round them away: for u < 1/256 a
    series is used.
    """
    u = jnp.minimum((bits.astype(jnp.float32) + 0.5) * np.float32(2**-32), np.float32(1 - 2**-24))
    return jnp.where(u < 1 / 256, u * (1 + u * (0.5 + u / 3)), -jnp.log(1 - u))


def sample(
    logits: Float[Array, "B V"], row_params: RowSamplingParams, alternatives: int = 0
) -> SampledTokens:
    """Sample a token for every row by an exponential race: argmax(p / noise).

    The noise depends on the row's key and the token's position in its call. This is the Gumbel-max
    trick, argmax(log p + gumbel), without the second logarithm.
    """
    greedy = row_params.temperature == 0
    tempered = logits / jnp.where(greedy, 1.0, row_params.temperature)[:, None]
    unfiltered = (row_params.top_k == 0) & (row_params.top_p >= 1) & (row_params.min_p <= 0)

    def filter_rows() -> Array:  # normalizing would change the last bits of an unfiltered row
        logp = jax.nn.log_softmax(tempered)
        filtered = filter_logp(logp, row_params.top_k, row_params.top_p, row_params.min_p)
        return jnp.where(unfiltered[:, None], tempered, filtered)

    scores = jax.lax.cond(jnp.all(unfiltered), lambda: tempered, filter_rows)
    below_max = scores - jnp.max(scores, axis=-1, keepdims=True)
    weight = jnp.exp(below_max)
    total = jnp.sum(weight, axis=-1)
    log_total = jnp.log(total)
    race = weight / exponential(random_bits(row_params.key, row_params.written, logits.shape[1]))
    token = first_argmax(jnp.where(greedy[:, None], logits, race))
    logp = jnp.take_along_axis(below_max, token[:, None], axis=-1)[:, 0] - log_total
    entropy = log_total - jnp.sum(jnp.where(weight > 0, weight * below_max, 0.0), axis=-1) / total
    if alternatives:
        top_logp, top_ids = jax.lax.top_k(below_max - log_total[:, None], alternatives)
    else:
        top_logp, top_ids = below_max[:, :0], token[:, None][:, :0]
    return SampledTokens(
        token=token, logp=jnp.where(greedy, 0.0, logp), entropy=jnp.where(greedy, 0.0, entropy),
        alternatives=top_ids.astype(jnp.int32), alternative_logp=top_logp,
    )  # fmt: skip
