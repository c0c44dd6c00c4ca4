"""Reading free text in linear time: words, their stems, and the longest known phrase at a place."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Generic, TypeVar

T = TypeVar("T")
LONGEST = 1000  # letters of a text that are read; nobody understands a longer question
# A word is a run without white space and ASCII punctuation, so that letters and signs of any script make words.
WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+(?:'[a-z]+)?")
NUMBERS = MappingProxyType({"1": "one", "2": "two", "3": "three", "4": "four"})
# What no rule finds: the stem of an irregular form, and words that are to stay apart ("clothes" from "cloth").
IRREGULAR: Mapping[str, str] = MappingProxyType(
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
        "women": "woman", "men": "man", "feet": "foot", "teeth": "tooth", "found": "find", "kept": "keep", "played": "play",
        "slept": "sleep", "sat": "sit", "taken": "tak", "took": "tak", "held": "hold", "built": "build",
    }
)  # fmt: skip


def words(text: str) -> list[str]:
    """The words in lower case, numbers up to four spelled out."""
    found = WORD.findall(text.lower().replace("’", "'"))
    return [NUMBERS.get(word, word) for word in found]


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A crude stem, the same for the forms of a regular word: "uses", "used" and "using" give "us"."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ing") and len(word) > 4:
        word = _undoubled(word[:-3])
    elif word.endswith("ed") and len(word) > 3:
        word = _undoubled(word[:-2])
    return word[:-1] if word.endswith("e") and len(word) > 2 else word


def _undoubled(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word


class Phrases(Generic[T]):
    """Known phrases, each with what it means; the longest that begins at a place is found."""

    def __init__(self, meanings: Iterable[tuple[Sequence[str], T]]) -> None:
        self._meanings: dict[tuple[str, ...], T] = {tuple(phrase): meaning for phrase, meaning in meanings}
        lengths: dict[str, set[int]] = {}
        for phrase in self._meanings:
            lengths.setdefault(phrase[0], set()).add(len(phrase))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def at(self, place: int, tokens: Sequence[str]) -> tuple[int, T] | None:
        """How many tokens the longest phrase at `place` has, and its meaning; None where no phrase begins."""
        for length in self._lengths.get(tokens[place], ()) if place < len(tokens) else ():
            meaning = self._meanings.get(tuple(tokens[place : place + length]))
            if meaning is not None:
                return length, meaning
        return None

    def within(self, tokens: Sequence[str]) -> list[T]:
        """The meanings of all phrases in the tokens, longest first at each place, none overlapping."""
        found, place = [], 0
        while place < len(tokens):
            here = self.at(place, tokens)
            if here is not None:
                found.append(here[1])
            place += here[0] if here else 1
        return found
