"""The two compiled programs of sampling: prefill a chunk of prompts, decode a burst of tokens."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from agentrl_jax.policy import Cache, Inputs, Params, Policy
from agentrl_jax.record import AnyArray, record

STOPS = 4  # stop ids a row can have


@record
class Knobs:
    """What varies from row to row, all traced. `left` counts the tokens that the row may still write; 0: not live."""

    last: Int[AnyArray, "B"]  # the last token, not yet in the cache
    length: Int[AnyArray, "B"]  # tokens in the cache
    left: Int[AnyArray, "B"]
    written: Int[AnyArray, "B"]  # tokens of this call so far
    key: UInt32[AnyArray, "B 2"]
    temperature: Float[AnyArray, "B"]
    top_k: Int[AnyArray, "B"]
    top_p: Float[AnyArray, "B"]
    min_p: Float[AnyArray, "B"]
    stops: Int[AnyArray, "B stops"]  # filled up with -1


@record
class Burst:
    """Tokens written, from column 0; a row that died early has fewer than `steps`."""

    tokens: Int[AnyArray, "B burst"]
    logp: Float[AnyArray, "B burst"]
    entropy: Float[AnyArray, "B burst"]
    written: Int[AnyArray, "B"]


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


def sample(logits: Float[Array, "B V"], knobs: Knobs) -> tuple[Int[Array, "B"], Float[Array, "B"], Float[Array, "B"]]:
    """Token, its log-prob and the entropy in nats, all of the distribution really sampled from (greedy: 0 and 0)."""
    greedy = knobs.temperature == 0
    logp = jax.nn.log_softmax(logits / jnp.where(greedy, 1.0, knobs.temperature)[:, None])
    plain = (knobs.top_k == 0) & (knobs.top_p >= 1) & (knobs.min_p <= 0)

    def mixed() -> Array:  # renormalising would move a plain row's last bits
        return jnp.where(plain[:, None], logp, filtered(logp, knobs.top_k, knobs.top_p, knobs.min_p))

    logp = jax.lax.cond(jnp.all(plain), lambda: logp, mixed)
    keys = jax.vmap(jax.random.fold_in)(jax.random.wrap_key_data(jnp.asarray(knobs.key)), knobs.written)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, logp.shape[1:]))(keys)
    token = jnp.argmax(jnp.where(greedy[:, None], logits, logp + noise), axis=-1).astype(jnp.int32)
    chosen = jnp.take_along_axis(logp, token[:, None], axis=-1)[:, 0]
    entropy = -jnp.sum(jnp.where(jnp.isfinite(logp), jnp.exp(logp) * logp, 0.0), axis=-1)
    return token, jnp.where(greedy, 0.0, chosen), jnp.where(greedy, 0.0, entropy)


def prefill(
    policy: Policy, params: Params, cache: Cache, tokens: Int[Array, "B C"], start: Int[Array, "B"], count: Int[Array, "B"]
) -> Cache:
    """Write the keys and values of `count` tokens a row, from position `start` on."""
    columns = jnp.arange(tokens.shape[1])[None]
    inputs = Inputs(tokens=tokens, positions=start[:, None] + columns, segment_ids=(columns < count[:, None]).astype(jnp.int32))
    out = policy.apply(params, inputs, cache).cache
    assert out is not None
    return out


def decode(policy: Policy, burst: int, params: Params, cache: Cache, knobs: Knobs) -> tuple[Cache, Burst]:
    """Up to `burst` tokens for every live row; ends early when no row lives."""
    rows = knobs.last.shape[0]
    blank = jnp.zeros((rows, burst), jnp.float32)
    start = (
        jnp.int32(0),
        knobs,
        cache,
        Burst(tokens=blank.astype(jnp.int32), logp=blank, entropy=blank, written=jnp.zeros_like(knobs.left)),
    )

    def alive(carry: tuple) -> Array:
        step, knobs, _, _ = carry
        return (step < burst) & jnp.any(knobs.left > 0)

    def write(carry: tuple) -> tuple:
        step, knobs, cache, out = carry
        live = knobs.left > 0
        inputs = Inputs(tokens=knobs.last[:, None], positions=knobs.length[:, None], segment_ids=live.astype(jnp.int32)[:, None])
        output = policy.apply(params, inputs, cache)
        token, logp, entropy = sample(policy.logits(params, output.hidden[:, 0]), knobs)
        stopped = jnp.any(token[:, None] == knobs.stops, axis=-1)
        one = live.astype(jnp.int32)
        knobs = Knobs(
            last=jnp.where(live, token, knobs.last),
            length=knobs.length + one,
            left=jnp.where(live & ~stopped, knobs.left - 1, 0),
            written=knobs.written + one,
            key=knobs.key, temperature=knobs.temperature, top_k=knobs.top_k, top_p=knobs.top_p, min_p=knobs.min_p, stops=knobs.stops,
        )  # fmt: skip

        def put(column: Array, value: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(column, value, step, axis=1)

        out = Burst(
            tokens=put(out.tokens, jnp.where(live, token, 0)),
            logp=put(out.logp, jnp.where(live, logp, 0.0)),
            entropy=put(out.entropy, jnp.where(live, entropy, 0.0)),
            written=out.written + one,
        )
        return step + 1, knobs, output.cache, out

    _, _, cache, out = jax.lax.while_loop(alive, write, start)
    return cache, out


def compile_programs(policy: Policy, burst: int) -> tuple[Callable[..., Cache], Callable[..., tuple[Cache, Burst]]]:
    """Both programs, jitted, with the cache donated; one compilation per cache span."""
    return (
        jax.jit(functools.partial(prefill, policy), donate_argnums=1),
        jax.jit(functools.partial(decode, policy, burst), donate_argnums=1),
    )
