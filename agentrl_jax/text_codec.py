"""`TextCodec`: texts to token ids and back, with a tokenizer."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

TokenIds = np.ndarray  # int32 [tokens]


def readonly_ids(ids: Sequence[int]) -> TokenIds:
    """The ids as an array that cannot be changed, for it may be cached."""
    array = np.asarray(ids, np.int32)
    array.setflags(write=False)
    return array


class TextCodec:
    """Text to ids and back, cached.

    `encode_plain` never reads an environment's text as a special token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.encode_plain = functools.lru_cache(65536)(self._encode_plain)
        self.decode = functools.lru_cache(65536)(self._decode)

    def encode_with_special_tokens(self, text: str) -> TokenIds:
        """Ids of a text in which special tokens are spelled on purpose."""
        return readonly_ids(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode_plain(self, text: str) -> TokenIds:
        return readonly_ids(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        )

    def _decode(self, ids: tuple[int, ...]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)
