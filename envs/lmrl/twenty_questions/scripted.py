"""The scripted oracle: free-form yes/no questions, answered from the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from agentrl_jax.envs.lmrl.phrases import LONGEST, Phrases, stem, words
from agentrl_jax.envs.lmrl.twenty_questions.table import attributes, places, row_of, things

NEGATIONS = frozenset(["not", "never", "no", "without", "cannot"])
ARTICLES = frozenset(words("a an the some any another your my"))
# Words between the beginning and a guess: "is it maybe a kind of ...", "are you thinking of a ...".
LEADING = ARTICLES | frozenset(
    words(
        "is it its this that they are was were could can might may would will be object item answer word secret something kind type sort "
        "form of you thinking think about called named mean so well ok okay maybe perhaps then just really actually simply probably i am "
        "guess do does other than thing hidden as"
    )
)
# Words that say nothing by themselves: what is left of a question that is understood.
EMPTY = LEADING | frozenset(
    words(
        "have has had having in on at by for with to from which who what when where while if there one we us our them their he she his her "
        "use uses used using find found see seen get gets put made make makes making person people human humans someone somebody anyone "
        "everyone usually typically commonly often most mostly mainly generally normally sometimes always ever common usual typical normal "
        "regular everyday daily day life considered classified consist consists contain contains containing include includes require "
        "requires need needs needed involve involves belong belongs related relate associated associate category class group member part "
        "size color colour colored coloured shape shaped look looks like feel feels primarily purpose order able also either both very "
        "quite more less many much things items objects fit inside into over around up down out off and or but known ones "
        "would should did done being been itself own owned kept keep come comes go goes place area room piece certain main mainly "
        "especially likely possible possibly average adult world exist exists available buy bought store stores easily power "
        "powered operate operated run runs work works produce produces"
    )
)
BIGGER = frozenset(["bigger", "larger", "taller"])
SMALLER = frozenset(["smaller", "littler", "shorter", "tinier"])
SIZES = {  # what people compare with, besides the things of the table
    "coin": 1, "fist": 2, "hand": 2, "breadbox": 3, "bread box": 3, "shoebox": 3, "shoe box": 3, "microwave": 4, "microwave oven": 4,
    "suitcase": 4, "human": 5, "person": 5, "man": 5, "me": 5, "you": 5, "house": 7, "building": 7, "room": 7, "mouse": 1,
}  # fmt: skip


@cache
def _everything() -> frozenset[int]:
    return frozenset(range(len(things())))


@cache
def _claims() -> Phrases[frozenset[int]]:
    """What phrases say of a thing, as the rows of which it is true."""
    found = []
    for attribute in attributes():
        rows = frozenset(row for row, thing in enumerate(things()) if attribute.name in thing.attributes)
        for phrase in attribute.phrases:
            tokens = [stem(word) for word in words(phrase.removeprefix("!"))]
            found.append((tokens, _everything() - rows if phrase.startswith("!") else rows))
    return Phrases(found)


@cache
def _guesses() -> Phrases[frozenset[int]]:
    return Phrases((name, frozenset([row])) for name, row in places().items())


@cache
def _sizes() -> Phrases[int]:
    return Phrases(
        [*((words(name), size) for name, size in SIZES.items()), *((name, things()[row].size) for name, row in places().items())]
    )


def _compared(place: int, tokens: Sequence[str]) -> tuple[int, frozenset[int]] | None:
    """ "bigger than a dog": the things of which it is true."""
    if tokens[place] not in BIGGER | SMALLER or tokens[place + 1 : place + 2] != ["than"]:
        return None
    start = place + 2
    while start < len(tokens) and tokens[start] in ARTICLES:
        start += 1
    reference = _sizes().at(start, tokens)
    if reference is None:
        return None
    length, size = reference
    true = {row for row, thing in enumerate(things()) if (thing.size > size if tokens[place] in BIGGER else thing.size < size)}
    return start + length - place, frozenset(true)


def truth(question: str) -> frozenset[int]:
    """The rows of the table of which the answer is "Yes."; none where the question is not understood.

    Its phrases are claims, all of which must hold, or one of which must where the question has "or". "not" turns the next claim
    round, "isn't it" does not. A name is a claim only where nothing but leading words and other claims stands before it. One
    word that is neither known nor empty makes the question one that is not understood.
    """
    return _truth(question) if len(question) <= LONGEST else frozenset()


@lru_cache(maxsize=4096)
def _truth(question: str) -> frozenset[int]:
    tokens = words(question)
    stems = [stem(word) for word in tokens]
    claims: list[frozenset[int]] = []
    place, negated, leading = 0, False, True
    while place < len(tokens):
        word = tokens[place]
        bare = place == 0 or tokens[place - 1] not in ARTICLES
        name = _guesses().at(place, tokens) if leading else None
        claim = _compared(place, tokens) or _claims().at(place, stems)
        if name is not None and (claim is None or not bare or name[0] > claim[0]):
            claim = name
        if claim is not None:
            claims.append(_everything() - claim[1] if negated else claim[1])
            place, negated = place + claim[0], False
            continue
        if word in NEGATIONS or (place and word.endswith("n't")):
            negated = True
        elif word not in EMPTY and not word.endswith("n't"):
            return frozenset()
        leading = leading and (word in LEADING or word in NEGATIONS or word.endswith("n't") or word == "or")
        place += 1
    if not claims:
        return frozenset()
    return frozenset.union(*claims) if "or" in tokens else frozenset.intersection(*claims)


@dataclass(frozen=True)
class ScriptedOracle:
    """Answers "Yes." or "No." by the table; a question that it does not understand is answered "No."."""

    def answer(self, hidden: str, question: str) -> str:
        """See `Oracle.answer`; `hidden` is a thing of the table in any of its names."""
        return "Yes." if row_of(hidden) in truth(question) else "No."
