"""How a token is drawn: the knobs of every row, filters, and what is recorded of the draw."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from agentrl_jax.record import AnyArray, record

STOPS = 4  # stop ids a row can have
FEED = 8  # tokens of a prompt that the decode program can take in before it samples
_FIELDS = ("last", "length", "left", "written", "waiting", "top_k")


@record
class Knobs:
    """What varies from row to row, all traced. `left` counts the tokens that the row may still write; 0: not live."""

    last: Int[AnyArray, "B"]  # the last token, not yet in the cache
    length: Int[AnyArray, "B"]  # tokens in the cache
    left: Int[AnyArray, "B"]
    written: Int[AnyArray, "B"]  # tokens of this call so far
    waiting: Int[AnyArray, "B"]  # tokens of `feed`, its last ones, that follow `last` before anything is sampled
    feed: Int[AnyArray, "B feed"]
    key: UInt32[AnyArray, "B 2"]
    temperature: Float[AnyArray, "B"]
    top_k: Int[AnyArray, "B"]
    top_p: Float[AnyArray, "B"]
    min_p: Float[AnyArray, "B"]
    stops: Int[AnyArray, "B stops"]  # filled up with -1


class Board:
    """The knobs of all rows as two arrays, which is how they go to the device: many small arrays would cost more than a token."""

    def __init__(self, rows: int) -> None:
        self.ints = np.zeros((rows, len(_FIELDS) + 2 + STOPS + FEED), np.int32)
        self.floats = np.ones((rows, 3), np.float32)

    def write(
        self, row: int, tokens: np.ndarray, length: int, left: int, written: int, top_k: int, key: np.ndarray, stops: tuple[int, ...],
        floats: tuple[float, float, float],
    ) -> None:  # fmt: skip
        """One row: the tokens that follow the `length` cached ones, and at the end temperature, top-p and min-p."""
        at, feed = len(_FIELDS), tokens[1:]
        self.ints[row, :at] = tokens[0], length, left, written, len(feed), top_k
        self.ints[row, at : at + 2] = key.view(np.int32)
        self.ints[row, at + 2 : at + 2 + STOPS] = [*stops, *[-1] * (STOPS - len(stops))]
        self.ints[row, self.ints.shape[1] - len(feed) :] = feed
        self.floats[row] = floats

    @staticmethod
    def read(ints: Int[Array, "B ints"], floats: Float[Array, "B 3"]) -> Knobs:
        fields, at = {name: ints[:, i] for i, name in enumerate(_FIELDS)}, len(_FIELDS)
        key = jax.lax.bitcast_convert_type(ints[:, at : at + 2], jnp.uint32)
        stops, feed = ints[:, at + 2 : at + 2 + STOPS], ints[:, at + 2 + STOPS :]
        return Knobs(**fields, key=key, stops=stops, feed=feed, temperature=floats[:, 0], top_p=floats[:, 1], min_p=floats[:, 2])


def filtered(
    logp: Float[Array, "B V"], top_k: Int[AnyArray, "B"], top_p: Float[AnyArray, "B"], min_p: Float[AnyArray, "B"]
) -> Float[Array, "B V"]:
    """Log-probs after top-k, top-p and min-p, each applied to the tempered distribution, renormalised.

    Keeps a token where its rank < k, the mass before it < p, and its probability >= min_p x the largest. Ties are kept.
    """
    size = logp.shape[-1]
    ordered = -jnp.sort(-logp, axis=-1)
    mass_before = jnp.cumsum(jnp.exp(ordered), axis=-1) - jnp.exp(ordered)
    nucleus = jnp.sum(mass_before < top_p[:, None], axis=-1)
    count = jnp.minimum(nucleus, jnp.where(top_k > 0, top_k, size))
    lowest = jnp.take_along_axis(ordered, jnp.maximum(count - 1, 0)[:, None], axis=-1)
    floor = ordered[:, :1] + jnp.log(min_p)[:, None]
    return jax.nn.log_softmax(jnp.where(logp >= jnp.maximum(lowest, floor), logp, -jnp.inf))


@record
class Sampled:
    """One token a row, and what is said of it: all of the distribution really sampled from (greedy: log-prob and entropy 0)."""

    token: Int[Array, "B"]
    logp: Float[Array, "B"]
    entropy: Float[Array, "B"]  # nats
    alternatives: Int[Array, "B k"]
    alternative_logp: Float[Array, "B k"]


def first_largest(x: Float[Array, "B V"]) -> Int[Array, "B"]:
    """`argmax` over the last axis, in two reductions of numbers: a CPU does them in vectors, and pairs one by one."""
    columns = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
    here = jnp.where(x == jnp.max(x, axis=-1, keepdims=True), columns, x.shape[1] - 1)
    return jnp.min(here, axis=-1)


def mixed(x: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    """A bijection of 32-bit numbers in which each bit changes every other one half of the time (Wellons' lowbias32)."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def random_bits(key: UInt32[AnyArray, "B 2"], number: Int[AnyArray, "B"], size: int) -> UInt32[Array, "B {size}"]:
    """Random numbers that the row's key, `number` and their column name, and nothing else.

    Key and number are hashed to two words, the column with one of them and then the other: an eighth of threefry's work for as
    many numbers, of which nobody needs to be unable to guess the next.
    """
    key = jnp.asarray(key)
    first = mixed(key[:, 0] ^ mixed(jnp.asarray(number).astype(jnp.uint32) + np.uint32(0x9E3779B9)))
    second = mixed(key[:, 1] ^ mixed(first))
    columns = jax.lax.broadcasted_iota(jnp.uint32, (len(key), size), 1)
    return mixed(mixed(columns ^ first[:, None]) + second[:, None])


def exponential(bits: UInt32[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Standard exponential numbers of uniform bits: `-log(1 - u)` with u between 2^-33 and 1 - 2^-24.

    Small ones decide who is sampled, and 1 - u would round them away: below 1/256 they are summed as a series.
    """
    u = jnp.minimum((bits.astype(jnp.float32) + 0.5) * np.float32(2**-32), np.float32(1 - 2**-24))
    return jnp.where(u < 1 / 256, u * (1 + u * (0.5 + u / 3)), -jnp.log(1 - u))


def sample(logits: Float[Array, "B V"], knobs: Knobs, alternatives: int = 0) -> Sampled:
    """A token for every row, by an exponential race: argmax(p / noise), the noise named by the row's key and its token's number.

    It is Gumbel's trick, whose argmax(log p + gumbel) orders tokens likewise, without the second logarithm.
    """
    greedy = knobs.temperature == 0
    tempered = logits / jnp.where(greedy, 1.0, knobs.temperature)[:, None]
    plain = (knobs.top_k == 0) & (knobs.top_p >= 1) & (knobs.min_p <= 0)

    def some_filtered() -> Array:  # renormalising would move a plain row's last bits
        return jnp.where(plain[:, None], tempered, filtered(jax.nn.log_softmax(tempered), knobs.top_k, knobs.top_p, knobs.min_p))

    kept = jax.lax.cond(jnp.all(plain), lambda: tempered, some_filtered)
    below = kept - jnp.max(kept, axis=-1, keepdims=True)
    share = jnp.exp(below)
    total = jnp.sum(share, axis=-1)
    log_total = jnp.log(total)
    race = share / exponential(random_bits(knobs.key, knobs.written, logits.shape[1]))
    token = first_largest(jnp.where(greedy[:, None], logits, race))
    chosen = jnp.take_along_axis(below, token[:, None], axis=-1)[:, 0] - log_total
    entropy = log_total - jnp.sum(jnp.where(share > 0, share * below, 0.0), axis=-1) / total
    best, likeliest = jax.lax.top_k(below - log_total[:, None], alternatives) if alternatives else (below[:, :0], token[:, None][:, :0])
    return Sampled(
        token=token, logp=jnp.where(greedy, 0.0, chosen), entropy=jnp.where(greedy, 0.0, entropy),
        alternatives=likeliest.astype(jnp.int32), alternative_logp=best,
    )  # fmt: skip
