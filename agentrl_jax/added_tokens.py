"""`AddedTokens`: the tokens that a tokenizer finds in texts before it splits them, as `<|im_end|>`.

A text from outside may spell them. `escape` breaks each by a mark that no text needs, so that a
chat template and the tokenizer leave it alone; `unescape` restores the text.
"""

import functools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

# The last variation selector: no font uses it, and Python's repr and JSON leave it as it is. One
# that a text holds is doubled.
BREAK = "\U000e01ef"
# Runs of spaces and line feeds that some tokenizers add are ordinary text.
_BLANK = re.compile(r"[\s▁]*")


@dataclass(frozen=True, eq=False)
class AddedTokens:
    """A tokenizer's added tokens of two characters or more, and not of white space alone."""

    ids: Mapping[str, int]
    special: frozenset[str]  # those that the tokenizer calls special
    unknown_id: int | None  # stands for ordinary text that the vocabulary lacks

    @classmethod
    def of(cls, tokenizer: Any) -> "AddedTokens":
        """Those of a Hugging Face tokenizer."""
        tokens = {
            token.content: (token_id, token.special)
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if len(token.content) > 1 and not _BLANK.fullmatch(token.content)
        }
        ids = {token: token_id for token, (token_id, _) in tokens.items()}
        special = frozenset(token for token, (_, is_special) in tokens.items() if is_special)
        return cls(ids, special, tokenizer.unk_token_id)

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches each of them, the longest first."""
        return token_pattern(self.ids)

    @functools.cached_property
    def start_pattern(self) -> re.Pattern[str]:
        """Matches the empty text where one begins, also within another."""
        return re.compile(f"(?={self.pattern.pattern})")

    @functools.cached_property
    def control_ids(self) -> frozenset[int]:
        """The ids that no plain text has."""
        return frozenset(self.ids.values()) - {self.unknown_id}


def token_pattern(tokens: Collection[str]) -> re.Pattern[str]:
    """A pattern of all tokens, the longest first, in time linear in the text."""
    trie: dict[str, Any] = {}
    for token in tokens:
        node = trie
        for character in token:
            node = node.setdefault(character, {})
        node[""] = {}
    return re.compile(_trie_expression(trie) or "(?!)")


def _trie_expression(node: Mapping[str, Any]) -> str:
    branches = [
        re.escape(character) + _trie_expression(child)
        for character, child in node.items()
        if character
    ]
    if len(branches) == 1 and "" not in node:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if '' in node else ''}" if branches else ""


def escaper(tokens: Collection[str]) -> Callable[[str], str]:
    """A function that breaks these tokens in a text, also where they overlap.

    "a<think>"  ->  "a<BREAKthink>"
    """
    start = re.compile(f"(?={token_pattern(tokens).pattern})(.)", re.DOTALL)
    return lambda text: start.sub(rf"\1{BREAK}", text.replace(BREAK, BREAK * 2))


def unescape(text: str) -> str:
    """The text that was escaped."""
    return re.sub(f"{BREAK}({BREAK}?)", r"\1", text)


def cut_tokens(text: str, start: re.Pattern[str]) -> list[str]:
    """The text in pieces, of which none holds a whole token."""
    cuts = [match.start() + 1 for match in start.finditer(text)]
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


def escape_json(value: Any, escape: Callable[[str], str]) -> Any:
    """JSON data with all of its texts escaped, the keys of objects too."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {escape(str(key)): escape_json(item, escape) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [escape_json(item, escape) for item in value]
    return value
