"""The scripted oracle: free-form yes/no questions, answered from the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from agentrl_jax.envs.lmrl.phrases import MAX_TEXT_LENGTH, PhraseMatcher, split_words, stem
from agentrl_jax.envs.lmrl.twenty_questions.knowledge import (
    all_items,
    attributes,
    row_by_name,
    row_by_words,
)

NEGATIONS = frozenset(["not", "never", "no", "without", "cannot"])
ARTICLES = frozenset(split_words("a an the some any another your my"))
# Words before a guess: "is it maybe a kind of ...", "are you thinking of a ...".
LEADING_WORDS = ARTICLES | frozenset(
    split_words(
        "is it its this that they are was were could can might may would will be object item "
        "answer word secret something kind type sort "
        "form of you thinking think about called named mean so well ok okay maybe perhaps then "
        "just really actually simply probably i am "
        "guess do does other than thing hidden as"
    )
)
# Words without meaning of their own; a question with any other unknown word is not understood.
FILLER_WORDS = LEADING_WORDS | frozenset(
    split_words(
        "have has had having in on at by for with to from which who what when where while if "
        "there one we us our them their he she his her "
        "use uses used using find found see seen get gets put made make makes making person "
        "people human humans someone somebody anyone "
        "everyone usually typically commonly often most mostly mainly generally normally "
        "sometimes always ever common usual typical normal "
        "regular everyday daily day life considered classified consist consists contain contains "
        "containing include includes require "
        "requires need needs needed involve involves belong belongs related relate associated "
        "associate category class group member part "
        "size color colour colored coloured shape shaped look looks like feel feels primarily "
        "purpose order able also either both very "
        "quite more less many much things items objects fit inside into over around up down out "
        "off and or but known ones "
        "would should did done being been itself own owned kept keep come comes go goes place "
        "area room piece certain main mainly "
        "especially likely possible possibly average adult world exist exists available buy "
        "bought store stores easily power "
        "powered operate operated run runs work works produce produces"
    )
)
BIGGER_WORDS = frozenset(["bigger", "larger", "taller"])
SMALLER_WORDS = frozenset(["smaller", "littler", "shorter", "tinier"])
REFERENCE_SIZES = {  # common comparisons in addition to the items of the table
    "coin": 1,
    "fist": 2,
    "hand": 2,
    "breadbox": 3,
    "bread box": 3,
    "shoebox": 3,
    "shoe box": 3,
    "microwave": 4,
    "microwave oven": 4,
    "suitcase": 4,
    "human": 5,
    "person": 5,
    "man": 5,
    "me": 5,
    "you": 5,
    "house": 7,
    "building": 7,
    "room": 7,
    "mouse": 1,
}


@cache
def _all_rows() -> frozenset[int]:
    return frozenset(range(len(all_items())))


@cache
def _claim_phrases() -> PhraseMatcher[frozenset[int]]:
    """The rows of which each phrase is true."""
    claims = []
    for attribute in attributes():
        rows = frozenset(
            row for row, thing in enumerate(all_items()) if attribute.name in thing.attributes
        )
        for phrase in attribute.phrases:
            tokens = [stem(word) for word in split_words(phrase.removeprefix("!"))]
            claims.append((tokens, _all_rows() - rows if phrase.startswith("!") else rows))
    return PhraseMatcher(claims)


@cache
def _name_phrases() -> PhraseMatcher[frozenset[int]]:
    return PhraseMatcher((name, frozenset([row])) for name, row in row_by_words().items())


@cache
def _size_phrases() -> PhraseMatcher[int]:
    return PhraseMatcher(
        [
            *((split_words(name), size) for name, size in REFERENCE_SIZES.items()),
            *((name, all_items()[row].size) for name, row in row_by_words().items()),
        ]
    )


def _match_comparison(position: int, tokens: Sequence[str]) -> tuple[int, frozenset[int]] | None:
    """ "bigger than a dog": the number of tokens, and the rows of which it is true."""
    if tokens[position] not in BIGGER_WORDS | SMALLER_WORDS or tokens[
        position + 1 : position + 2
    ] != ["than"]:
        return None
    start = position + 2
    while start < len(tokens) and tokens[start] in ARTICLES:
        start += 1
    reference = _size_phrases().longest_match(start, tokens)
    if reference is None:
        return None
    length, size = reference
    true = {
        row
        for row, thing in enumerate(all_items())
        if (thing.size > size if tokens[position] in BIGGER_WORDS else thing.size < size)
    }
    return start + length - position, frozenset(true)


def true_rows(question: str) -> frozenset[int]:
    """The rows of the table for which the answer is "Yes."; none for a question not understood.

    The phrases of a question are claims, all of which must hold, or one of which must with "or".
    "not" negates the next claim, "isn't it" does not. A name is a claim only after nothing but
    leading words and other claims. A question with an unknown word is not understood.
    """
    return _true_rows(question) if len(question) <= MAX_TEXT_LENGTH else frozenset()


@lru_cache(maxsize=4096)
def _true_rows(question: str) -> frozenset[int]:
    tokens = split_words(question)
    stems = [stem(word) for word in tokens]
    claims: list[frozenset[int]] = []
    position, negated, leading = 0, False, True
    while position < len(tokens):
        word = tokens[position]
        bare = position == 0 or tokens[position - 1] not in ARTICLES
        name = _name_phrases().longest_match(position, tokens) if leading else None
        claim = _match_comparison(position, tokens) or _claim_phrases().longest_match(
            position, stems
        )
        if name is not None and (claim is None or not bare or name[0] > claim[0]):
            claim = name
        if claim is not None:
            claims.append(_all_rows() - claim[1] if negated else claim[1])
            position, negated = position + claim[0], False
            continue
        if word in NEGATIONS or (position and word.endswith("n't")):
            negated = True
        elif word not in FILLER_WORDS and not word.endswith("n't"):
            return frozenset()
        leading = leading and (
            word in LEADING_WORDS or word in NEGATIONS or word.endswith("n't") or word == "or"
        )
        position += 1
    if not claims:
        return frozenset()
    return frozenset.union(*claims) if "or" in tokens else frozenset.intersection(*claims)


@dataclass(frozen=True)
class ScriptedOracle:
    """Answers "Yes." or "No." from the table; "No." to a question it does not understand."""

    def answer(self, hidden: str, question: str) -> str:
        """See `Oracle.answer`; `hidden` is an item by any of its names."""
        return "Yes." if row_by_name(hidden) in true_rows(question) else "No."
