"""`TokenDecoder`: the text of each token id, by the tokenizer of a run folder."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

REPLACEMENT = "\ufffd"  # what decodes from a part of a character
MAX_BYTES = 8  # tokens that may share a character
MAX_TOKENS = 100_000  # of one sequence; the pieces of those after it are empty

Decode = Callable[[list[int]], str]


class TokenDecoder:
    """Splits a decoded sequence into one piece of text per token.

    A character of several tokens is the piece of the last one; the others' pieces are empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @functools.cached_property
    def _decode(self) -> Decode | None:
        return _load(self._folder)

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """One text per id; None without a tokenizer, or where an id is none of its ids."""
        if self._decode is None:
            return None
        try:
            pieces = list(split_pieces(self._decode, list(ids[:MAX_TOKENS])))
        except (ValueError, TypeError, OverflowError, IndexError, KeyError):
            return None
        return pieces + [""] * (len(ids) - len(pieces))

    def texts(self, ids: Iterable[int]) -> dict[int, str]:
        """The text of each id by itself, of those that the tokenizer has."""
        pieces = {token: self.pieces([token]) for token in ids}
        return {token: piece[0] for token, piece in pieces.items() if piece}


def split_pieces(decode: Decode, ids: Sequence[int]) -> Iterator[str]:
    """Yields the text that each token adds to those before it.

    A piece is decoded after the piece before it: some tokenizers drop the space of a first word.
    """
    before: list[int] = []
    pending: list[int] = []
    for token in ids:
        pending.append(token)
        text = _added_text(decode, before, pending)
        if text.endswith(REPLACEMENT) and len(pending) < MAX_BYTES:
            yield ""
        else:
            yield text
            before, pending = pending, []


def _added_text(decode: Decode, before: list[int], ids: list[int]) -> str:
    return decode([*before, *ids]).removeprefix(decode(before)) if before else decode(ids)


def _load(folder: Path) -> Decode | None:
    if (folder / "tokenizer.json").is_file():
        return _load_fast(folder / "tokenizer.json")
    return _load_slow(folder) if folder.is_dir() else None


def _load_fast(path: Path) -> Decode | None:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # of any kind, from Rust: ids are shown instead
        return None
    return lambda ids: tokenizer.decode(ids, skip_special_tokens=False)


def _load_slow(folder: Path) -> Decode | None:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception:  # of any kind: ids are shown instead
        return None
    return lambda ids: tokenizer.decode(
        ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
