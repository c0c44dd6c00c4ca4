"""Texts as arrays of few shapes: by the encoder's tokenizer or as the policy's ids, cut on the
left, padded to a bucket.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from agentrl_jax.algorithms.archer.replay_buffer import TokenizedText
from agentrl_jax.errors import UserError
from agentrl_jax.learner.packing import Batch
from agentrl_jax.pytree import AnyArray, pytree_dataclass

# (texts, the most tokens each may have) -> ids of each
TextTokenizer = Callable[[Sequence[TokenizedText], int], list[np.ndarray]]


@pytree_dataclass
class TextBatch:
    """A text per row; the mask is true where a token is real, and in the first column."""

    tokens: Int[AnyArray, "B T"]
    mask: Bool[AnyArray, "B T"]


def policy_token_ids(texts: Sequence[TokenizedText], max_length: int) -> list[np.ndarray]:
    """The policy's ids, the last `max_length` of each."""
    return [text.ids[-max_length:] for text in texts]


def make_text_tokenizer(tokenizer: Any | None) -> TextTokenizer:
    """Encoding by a Hugging Face tokenizer; None: `policy_token_ids`.

    Long texts are cut on the left and enclosed in the tokenizer's first and last special token
    (RoBERTa's <s> and </s>). What looks like a special token in a text is encoded as plain
    characters.
    """
    if tokenizer is None:
        return policy_token_ids
    first, last = (
        [] if special is None else [special]
        for special in (tokenizer.cls_token_id, tokenizer.sep_token_id)
    )

    def tokenize(texts: Sequence[TokenizedText], max_length: int) -> list[np.ndarray]:
        room = max_length - len(first) - len(last)
        if room < 1:
            raise UserError(
                f"a critic that reads {max_length} tokens has no room for a text: let it read more"
            )
        plain = tokenizer(
            [text.text for text in texts], add_special_tokens=False, split_special_tokens=True
        )["input_ids"]
        return [np.array([*first, *ids[-room:], *last], np.int32) for ids in plain]

    return tokenize


def bucket_length(lengths: Sequence[int], length: int) -> int:
    """The smallest of the lengths that is at least `length`."""
    return min(bucket for bucket in lengths if bucket >= length)


def pad_texts(
    token_ids: Sequence[np.ndarray], length: int, num_rows: int, row_indices: np.ndarray
) -> TextBatch:
    """Text i in row `row_indices[i]`, padded on the right; the other rows are empty."""
    tokens, mask = np.zeros((num_rows, length), np.int32), np.zeros((num_rows, length), bool)
    mask[:, 0] = True  # attention over no token at all would be NaN
    for row, ids in zip(row_indices, token_ids, strict=True):
        tokens[row, : len(ids)], mask[row, : len(ids)] = ids, True
    return TextBatch(tokens=tokens, mask=mask)


def scatter_column(values: Any, row_indices: np.ndarray, num_rows: int) -> np.ndarray:
    """`values` at their rows and 0 elsewhere, float32 [num_rows, 1]."""
    out = np.zeros((num_rows, 1), np.float32)
    out[row_indices, 0] = values
    return out


def column_batch(weight: np.ndarray) -> Batch:
    """A `Batch` of these columns, with a token where the weight is positive."""
    real = weight > 0
    zeros, float_zeros = np.zeros(weight.shape, np.int32), np.zeros(weight.shape, np.float32)
    return Batch(
        tokens=zeros,
        positions=zeros,
        segment_ids=real.astype(np.int32),
        turns=zeros,
        action_mask=real,
        sampler_logp=float_zeros,
        version=zeros,
        temperature=float_zeros + 1,
        weight=weight,
    )
