"""Reading free text in linear time: words, stems, and the longest known phrase at a position."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Generic, TypeVar

Meaning = TypeVar("Meaning")
MAX_TEXT_LENGTH = 1000  # characters of a text that are read; a longer question is not parsed
# A word is a run without white space and ASCII punctuation, in any script.
WORD_PATTERN = re.compile(r"[^\s!-/:-@\[-`{-~]+(?:'[a-z]+)?")
NUMBER_WORDS = MappingProxyType({"1": "one", "2": "two", "3": "three", "4": "four"})
# Irregular forms, and words that must not share a stem ("clothes" and "cloth").
IRREGULAR_STEMS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("clothes", "clothing", "garments"), "garment"),
        **dict.fromkeys(("made", "making"), "mak"),
        **dict.fromkeys(("worn", "wore"), "wear"),
        **dict.fromkeys(("ate", "eaten"), "eat"),
        **dict.fromkeys(("driven", "drove"), "driv"),
        **dict.fromkeys(("ridden", "rode"), "rid"),
        **dict.fromkeys(("written", "wrote"), "writ"),
        **dict.fromkeys(("grown", "grew"), "grow"),
        **dict.fromkeys(("thrown", "threw"), "throw"),
        **dict.fromkeys(("people", "persons", "human", "humans", "someone", "somebody"), "person"),
        **dict.fromkeys(("children", "kids", "kid"), "child"),
        **dict.fromkeys(("their", "our", "my", "his", "her"), "your"),
        "women": "woman",
        "men": "man",
        "feet": "foot",
        "teeth": "tooth",
        "found": "find",
        "kept": "keep",
        "played": "play",
        "slept": "sleep",
        "sat": "sit",
        "taken": "tak",
        "took": "tak",
        "held": "hold",
        "built": "build",
    }
)


def spell_out(text: str) -> str:
    """A space between all characters: "slate" -> "s l a t e", "Qh5+" -> "Q h 5 +"."""
    return " ".join(text)


def split_words(text: str) -> list[str]:
    """The words in lower case; the numbers 1 to 4 as words."""
    words = WORD_PATTERN.findall(text.lower().replace("’", "'"))
    return [NUMBER_WORDS.get(word, word) for word in words]


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A crude stem, equal for the forms of a regular word: "uses", "used" and "using" give "us"."""
    if word in IRREGULAR_STEMS:
        return IRREGULAR_STEMS[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ing") and len(word) > 4:
        word = _strip_double_letter(word[:-3])
    elif word.endswith("ed") and len(word) > 3:
        word = _strip_double_letter(word[:-2])
    return word[:-1] if word.endswith("e") and len(word) > 2 else word


def _strip_double_letter(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word


class PhraseMatcher(Generic[Meaning]):
    """Known phrases with their meanings; the longest one that begins at a position matches."""

    def __init__(self, meanings: Iterable[tuple[Sequence[str], Meaning]]) -> None:
        self._meanings: dict[tuple[str, ...], Meaning] = {
            tuple(phrase): meaning for phrase, meaning in meanings
        }
        lengths: dict[str, set[int]] = {}
        for phrase in self._meanings:
            lengths.setdefault(phrase[0], set()).add(len(phrase))
        self._lengths = {
            first: sorted(phrase_lengths, reverse=True) for first, phrase_lengths in lengths.items()
        }

    def longest_match(self, position: int, tokens: Sequence[str]) -> tuple[int, Meaning] | None:
        """(number of tokens, meaning) of the longest phrase at `position`, or None."""
        for length in self._lengths.get(tokens[position], ()) if position < len(tokens) else ():
            meaning = self._meanings.get(tuple(tokens[position : position + length]))
            if meaning is not None:
                return length, meaning
        return None

    def all_matches(self, tokens: Sequence[str]) -> list[Meaning]:
        """The meanings of non-overlapping phrases from left to right, longest match first."""
        matched, position = [], 0
        while position < len(tokens):
            match = self.longest_match(position, tokens)
            if match is not None:
                matched.append(match[1])
            position += match[0] if match else 1
        return matched
