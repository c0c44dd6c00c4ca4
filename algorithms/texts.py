"""Texts as arrays of few shapes: read by a tokenizer of their own or by the policy's ids, cut on the left, padded to a bucket."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from agentrl_jax.algorithms.turn_replay import Said
from agentrl_jax.errors import UserError
from agentrl_jax.record import AnyArray, record

# (texts, the most tokens each may have) -> ids of each
Reader = Callable[[Sequence[Said], int], list[np.ndarray]]


@record
class Texts:
    """A text a row; the mask is true where a token is real, and in the first column."""

    tokens: Int[AnyArray, "B T"]
    mask: Bool[AnyArray, "B T"]


def policy_ids(texts: Sequence[Said], longest: int) -> list[np.ndarray]:
    """The policy's ids, the last `longest` of each."""
    return [text.ids[-longest:] for text in texts]


def reader(tokenizer: Any | None) -> Reader:
    """The reader of a Hugging Face tokenizer, or where there is none that of the policy's ids.

    The end of a long text is kept, with the tokenizer's first and last special token around it (RoBERTa's <s> and </s>). What looks
    like a special token in a text is plain characters.
    """
    if tokenizer is None:
        return policy_ids
    first, last = ([one] if one is not None else [] for one in (tokenizer.cls_token_id, tokenizer.sep_token_id))

    def read(texts: Sequence[Said], longest: int) -> list[np.ndarray]:
        room = longest - len(first) - len(last)
        if room < 1:
            raise UserError(f"a critic that reads {longest} tokens has no room for a text: let it read more")
        plain = tokenizer([text.text for text in texts], add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [np.array([*first, *ids[-room:], *last], np.int32) for ids in plain]

    return read


def bucket(lengths: Sequence[int], longest: int) -> int:
    """The least of the lengths that holds a text of so many tokens."""
    return min(length for length in lengths if length >= longest)


def padded(rows: Sequence[np.ndarray], length: int, count: int, seats: np.ndarray) -> Texts:
    """Row i at seat i of `count`, with padding after it; the other seats are empty."""
    tokens, mask = np.zeros((count, length), np.int32), np.zeros((count, length), bool)
    mask[:, 0] = True  # attention to nothing at all would be no number
    for seat, row in zip(seats, rows, strict=True):
        tokens[seat, : len(row)], mask[seat, : len(row)] = row, True
    return Texts(tokens=tokens, mask=mask)
