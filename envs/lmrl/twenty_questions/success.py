"""When a question is the right guess, as LMRL-Gym and ArCHer test it."""

from collections.abc import Sequence

from agentrl_jax.envs.lmrl.phrases import words

ALLOWED = frozenset(["object", "something", "type", "kind"])  # nouns that a guess may hold besides the object's own words
# Every other word counts as a noun, as an unknown word does to a tagger.
CLOSED_CLASSES = frozenset(
    words(
        # determiners, pronouns, numerals
        "a an the some any another this that these those my your our his her its their i you he she it we they me him them us one two "
        "three four which what who whom whose each every either neither both all no none "
        # auxiliaries and other verbs of questions
        "is are am was were be been being do does did done have has had having can could may might must shall should will would think "
        "thinking thought guess guessing mean meaning called named say saying considered known use used using make made look looks "
        # prepositions, conjunctions, particles
        "of in on at by for with without to from into onto over under about as like than and or but nor not if then so because while "
        "when where why how there here up down out off "
        # adverbs and answers
        "yes ok okay well maybe perhaps just also too very quite really rather ever never always often sometimes again now still even "
        "only almost already else "
        # adjectives of guesses
        "big bigger large larger small smaller little tiny huge long short tall thin flat round soft hard sharp hot cold warm sweet sour "
        "heavy light old new common popular typical regular normal certain specific particular real possible red green blue yellow white "
        "black brown gray grey pink purple musical electric electronic wooden edible alive living wild dangerous expensive cheap other "
        "more most less least same different first last"
    )
)


def _variants(names: Sequence[str]) -> list[list[str]]:
    return [words(name) for name in names]


def _ended(question: str) -> str:
    """Without what stands after its last letter."""
    end = len(question)
    while end and not question[end - 1].isalpha():
        end -= 1
    return question[:end]


def _noun(word: str) -> bool:
    return word not in CLOSED_CLASSES and not word.isdigit() and not word.endswith("ly")


def is_done(names: Sequence[str], question: str) -> bool:
    """LMRL-Gym's test: the question ends with the words of a name and holds no other noun.

    Nouns in `ALLOWED` and nouns before "of" are allowed: "Is it a type of dog?", "Is it a pair of scissors?".
    """
    tokens = words(_ended(question))
    for variant in _variants(names):
        if tokens[-len(variant) :] == variant:
            before = zip(tokens, [*tokens[1:], ""])
            return all(word in variant or word in ALLOWED or after == "of" or not _noun(word) for word, after in before)
    return False


def last_word_is(names: Sequence[str], question: str) -> bool:
    """ArCHer's test: the last word is a name; one of two words is never found."""
    last = words(_ended(question))[-1:]
    return any([name.lower()] == last for name in names)
