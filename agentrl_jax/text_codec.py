"""`TextCodec`: texts to token ids and back, with a tokenizer."""

import functools
import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.added_tokens import BREAK, AddedTokens, cut_tokens, unescape

TokenIds = np.ndarray  # int32 [tokens]


def readonly_ids(ids: Sequence[int]) -> TokenIds:
    """The ids as an array that cannot be changed, for it may be cached."""
    array = np.asarray(ids, np.int32)
    array.setflags(write=False)
    return array


class TextCodec:
    """Text to ids and back, cached.

    `encode_plain` never reads an environment's text as an added token.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.added_tokens = tokenizer, AddedTokens.of(tokenizer)
        self.encode_plain = functools.lru_cache(65536)(self._encode_plain)
        self.decode = functools.lru_cache(65536)(self._decode)

    def encode_with_special_tokens(self, text: str) -> TokenIds:
        """Ids of a text in which added tokens are spelled on purpose."""
        return readonly_ids(self._ids(text))

    def encode_escaped(self, text: str) -> TokenIds:
        """Ids of a text whose added tokens are spelled on purpose, but for those that are escaped.

        Where none is, they are those of `encode_with_special_tokens`.
        """
        if BREAK not in text:
            return self.encode_with_special_tokens(text)
        pieces = re.split(f"({self.added_tokens.pattern.pattern})", text)
        ids: list[int] = []
        for is_escaped, group in itertools.groupby(pieces, lambda piece: BREAK in piece):
            joined = "".join(group)
            ids += self._plain_ids(unescape(joined)) if is_escaped else self._ids(joined)
        return readonly_ids(ids)

    def _encode_plain(self, text: str) -> TokenIds:
        return readonly_ids(self._plain_ids(text))

    def _plain_ids(self, text: str) -> list[int]:
        pieces = cut_tokens(text, self.added_tokens.start_pattern)
        ids = [token for piece in pieces for token in self._ids(piece)]
        if self.added_tokens.control_ids.isdisjoint(ids):
            return ids
        # A tokenizer may make an added token of a text that does not spell it, as of full-width
        # letters.
        return [token for character in text for token in self._ids(character)]

    def _ids(self, text: str) -> list[int]:
        encoding = self.tokenizer(
            text,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return encoding["input_ids"]

    def _decode(self, ids: tuple[int, ...]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)
