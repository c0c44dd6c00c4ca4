"""Decode steps that check guesses: the tokens that followed the last two where they stood before.

Prompt lookup decoding (Saxena, 2023), without its rejection sampling: the noise of a token depends
on the call's key and the token's position alone, so that a guess is right exactly if it is what
would be sampled. With and without guesses a call samples the same tokens, but for ties within the
rounding of logits.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agentrl_jax.inference.sampling import (
    MAX_FED_TOKENS,
    RowSamplingParams,
    SampledTokens,
    is_stop_id,
    sample,
)
from agentrl_jax.pytree import pytree_dataclass


@pytree_dataclass
class GuessedTokens:
    """The inputs of a step: each row's last token, then tokens of its prompt or guesses."""

    tokens: Int[Array, "B T"]
    count: Int[Array, "B"]  # how many of them there are
    num_prompt: Int[Array, "B"]  # of these, tokens of the prompt after the last token


def guess_tokens(
    rows: RowSamplingParams, history: Int[Array, "B P"], guesses: int
) -> GuessedTokens:
    """What a step computes: rows that are still fed get the next tokens of their prompt.

    Args:
        rows: the rows' state.
        history: each row's tokens from its first on; that of position `length` is its last token.
        guesses: the most tokens after the last one.
    """
    columns = jnp.arange(guesses)[None]
    pending = jnp.asarray(rows.pending)
    at = jnp.clip(MAX_FED_TOKENS - pending[:, None] + columns, 0, MAX_FED_TOKENS - 1)
    prompt = jnp.take_along_axis(jnp.asarray(rows.pending_tokens), at, axis=1)
    following, num_following = look_up(history, jnp.asarray(rows.length), guesses)
    is_fed = pending > 0
    num_prompt = jnp.minimum(pending, guesses)
    num_guesses = jnp.clip(jnp.asarray(rows.remaining) - 1, 0, num_following)
    last = jnp.asarray(rows.last_token)[:, None]
    return GuessedTokens(
        tokens=jnp.concatenate([last, jnp.where(is_fed[:, None], prompt, following)], axis=1),
        count=1 + jnp.where(is_fed, num_prompt, num_guesses),
        num_prompt=num_prompt,
    )


def look_up(
    history: Int[Array, "B P"], length: Int[Array, "B"], guesses: int
) -> tuple[Int[Array, "B {guesses}"], Int[Array, "B"]]:
    """The tokens after the latest earlier place of the two at `length` - 1 and `length`, and how
    many there are.
    """
    positions = jnp.arange(history.shape[1])[None]
    last = jnp.take_along_axis(history, length[:, None], axis=1)
    before = jnp.take_along_axis(history, jnp.maximum(length - 1, 0)[:, None], axis=1)
    is_place = (history == last) & (jnp.roll(history, 1, axis=1) == before)
    is_place &= (positions > 0) & (positions < length[:, None])
    place = jnp.max(jnp.where(is_place, positions, -1), axis=1)
    at = place[:, None] + 1 + jnp.arange(guesses)[None]
    tokens = jnp.take_along_axis(history, jnp.minimum(at, history.shape[1] - 1), axis=1)
    return tokens, jnp.where(place >= 0, jnp.minimum(guesses, length - place), 0)


@pytree_dataclass
class CheckedTokens:
    """What a step samples: the first columns of each row, those that `is_written`."""

    sampled: tuple[SampledTokens, ...]  # one for each column
    is_written: Bool[Array, "B T"]
    num_fed: Int[Array, "B"]  # tokens of the prompt that were fed


def check_tokens(
    rows: RowSamplingParams,
    guessed: GuessedTokens,
    logits: Float[Array, "B T V"],
    alternatives: int,
) -> CheckedTokens:
    """Sample after each input for as long as the next one is what was sampled."""
    guesses = logits.shape[1] - 1
    pending, live = jnp.asarray(rows.pending), jnp.asarray(rows.remaining) > 0
    may_write = live & (pending <= guesses)
    sampled, is_written = [], []
    for j in range(guesses + 1):
        at = jnp.clip(guessed.num_prompt + j, 0, guesses)[:, None, None]
        column = jnp.take_along_axis(logits, at, axis=1)[:, 0]
        at_column = dataclasses.replace(rows, written=jnp.asarray(rows.written) + j)
        new = sample(column, at_column, alternatives)
        sampled.append(new)
        is_written.append(may_write)
        if j < guesses:
            is_right = (guessed.tokens[:, j + 1] == new.token) & (j + 1 < guessed.count)
            may_write &= is_right & (pending == 0) & ~is_stop_id(rows, new.token)
    num_fed = jnp.where(live, jnp.where(pending > guesses, guesses + 1, pending), 0)
    return CheckedTokens(
        sampled=tuple(sampled),
        is_written=jnp.stack(is_written, axis=1),
        num_fed=num_fed,
    )
