"""When a question is the right guess, by the tests of LMRL-Gym and ArCHer."""

from collections.abc import Sequence

from agentrl_jax.envs.lmrl.phrases import split_words

# Nouns that a guess may hold in addition to the object's own words.
ALLOWED_NOUNS = frozenset(["object", "something", "type", "kind"])
# Every other word counts as a noun, as an unknown word does for a tagger.
CLOSED_CLASS_WORDS = frozenset(
    split_words(
        # determiners, pronouns, numerals
        "a an the some any another this that these those my your our his her its their i you he "
        "she it we they me him them us one two "
        "three four which what who whom whose each every either neither both all no none "
        # auxiliaries and other verbs of questions
        "is are am was were be been being do does did done have has had having can could may "
        "might must shall should will would think "
        "thinking thought guess guessing mean meaning called named say saying considered known "
        "use used using make made look looks "
        # prepositions, conjunctions, particles
        "of in on at by for with without to from into onto over under about as like than and or "
        "but nor not if then so because while "
        "when where why how there here up down out off "
        # adverbs and answers
        "yes ok okay well maybe perhaps just also too very quite really rather ever never always "
        "often sometimes again now still even "
        "only almost already else "
        # adjectives of guesses
        "big bigger large larger small smaller little tiny huge long short tall thin flat round "
        "soft hard sharp hot cold warm sweet sour "
        "heavy light old new common popular typical regular normal certain specific particular "
        "real possible red green blue yellow white "
        "black brown gray grey pink purple musical electric electronic wooden edible alive living "
        "wild dangerous expensive cheap other "
        "more most less least same different first last"
    )
)


def _name_words(names: Sequence[str]) -> list[list[str]]:
    return [split_words(name) for name in names]


def _strip_trailing_symbols(question: str) -> str:
    """The text up to its last letter."""
    end = len(question)
    while end and not question[end - 1].isalpha():
        end -= 1
    return question[:end]


def _is_noun(word: str) -> bool:
    return word not in CLOSED_CLASS_WORDS and not word.isdigit() and not word.endswith("ly")


def is_done(names: Sequence[str], question: str) -> bool:
    """LMRL-Gym's test: the question ends with the words of a name and holds no other noun.

    Nouns in `ALLOWED_NOUNS` and nouns before "of" are allowed: "Is it a type of dog?", "Is it a
    pair of scissors?".
    """
    tokens = split_words(_strip_trailing_symbols(question))
    for variant in _name_words(names):
        if tokens[-len(variant) :] == variant:
            before = zip(tokens, [*tokens[1:], ""])
            return all(
                word in variant or word in ALLOWED_NOUNS or after == "of" or not _is_noun(word)
                for word, after in before
            )
    return False


def last_word_matches(names: Sequence[str], question: str) -> bool:
    """ArCHer's test: the last word is a name, so that names of two words never match."""
    last = split_words(_strip_trailing_symbols(question))[-1:]
    return any([name.lower()] == last for name in names)
