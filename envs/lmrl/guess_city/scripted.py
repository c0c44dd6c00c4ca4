"""The scripted oracle of Guess My City: answers to open questions in one or two sentences."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from agentrl_jax.envs.lmrl.guess_city.knowledge import City, cities
from agentrl_jax.envs.lmrl.guess_city.name_matching import (
    REFUSAL_TEXT,
    censor_reply,
    plain_words,
    row_by_name,
)
from agentrl_jax.envs.lmrl.guess_city.topics import TOPICS, Topic, topic_phrases
from agentrl_jax.envs.lmrl.phrases import MAX_TEXT_LENGTH, PhraseMatcher, stem

AUXILIARIES = frozenset(
    [
        "is",
        "are",
        "does",
        "do",
        "can",
        "could",
        "has",
        "have",
        "was",
        "did",
        "isn't",
        "aren't",
        "doesn't",
        "don't",
        "so",
    ]
)
SECRET_WORDS = frozenset(
    [
        "name",
        "names",
        "called",
        "country",
        "nation",
        "where",
        "spell",
        "letter",
        "letters",
        "located",
        "answer",
        "reveal",
    ]
)
# A yes/no question with one of these words cannot be answered from the table.
UNANSWERABLE_WORDS = frozenset(
    [
        "near",
        "nearby",
        "close",
        "far",
        "like",
        "similar",
        "between",
        "not",
        "never",
        "than",
        "without",
    ]
)
YES_TEXTS, NO_TEXTS = (
    ("Yes, that is right.", "Yes, it is so.", "Yes."),
    ("No, that is not right.", "No, it is not so.", "No."),
)
UNSURE_TEXTS = ("I am not sure about that.", "I don't know.", "I can't tell you that.")
# Stems of currencies and sports that mostly mean something else.
AMBIGUOUS_STEMS = frozenset(["real", "sol", "won", "rand", "run", "box"])
# Words for the value of a fact: (fact, part of its value) -> phrases.
FACT_PHRASES = {
    ("continent", "Europe"): "europe|european",
    ("continent", "Asia"): "asia|asian",
    ("continent", "Africa"): "africa|african",
    ("continent", "Oceania"): "oceania",
    ("continent", "North America"): "north america|north american",
    ("continent", "South America"): "south america|south american",
    ("continent", "America"): "america|americas|the americas",
    ("religion", "Islam"): "islam|muslim|islamic",
    ("religion", "Christianity"): "christian|christianity|catholic|protestant",
    ("religion", "Buddhism"): "buddhism|buddhist",
    ("religion", "Hinduism"): "hinduism|hindu",
    ("religion", "Judaism"): "judaism|jewish",
    ("capital", "yes"): "capital|capital city",
    ("coast", "yes"): "coast|coastal|sea|ocean|beach|seaside|shore|by the water",
    ("mountains", "yes"): "mountain|mountainous",
    ("metro", "yes"): "metro|subway",
    ("olympics", "1"): "olympic|olympics|olympic game",
    ("olympics", "2"): "olympic|olympics|olympic game",
    ("water", "river"): "river|on a river",
    ("water", "lake"): "lake",
    ("water", "canal"): "canal",
    ("hemisphere", "northern"): "northern hemisphere|north of the equator",
    ("hemisphere", "southern"): "southern hemisphere|south of the equator",
    ("driving", "left"): "drive on the left|on the left",
    ("driving", "right"): "drive on the right|on the right",
    ("government", "monarchy"): "monarchy|king|queen|kingdom",
    ("government", "republic"): "republic|president",
    ("climate", "desert"): "desert|dry|hot",
    ("climate", "tropical"): "tropical|hot|warm|humid",
    ("climate", "monsoon"): "hot|monsoon",
    ("climate", "Mediterranean"): "mediterranean|warm|sunny",
    ("climate", "subtropical"): "subtropical|warm|humid",
    ("climate", "cold"): "cold|snow|cold winter",
    ("climate", "rainy"): "rain|rainy|wet",
    ("climate", "mild"): "mild",
    ("age", "ancient"): "ancient|old|historic",
    ("age", "medieval"): "medieval|old|historic",
    ("age", "modern"): "modern",
}


def _phrase_rows() -> Iterator[tuple[str, set[int]]]:
    """Phrases with the cities of which they are true; a phrase may occur more than once."""
    for (fact, part), phrases in FACT_PHRASES.items():
        for phrase in phrases.split("|"):
            yield (
                phrase,
                {row for row, city in enumerate(cities()) if f" {part}" in f" {city.facts[fact]}"},
            )
    for row, city in enumerate(cities()):
        for name in (*city.names, *city.countries):
            yield name, {row}
        for word in plain_words(city.facts["language"].replace(" and ", " ").replace(",", "")):
            yield word, {row}
        for fact in ("region", "currency", "dish", "sport", "landmark"):
            yield city.facts[fact].removeprefix("the ").removeprefix("a "), {row}


@cache
def _claim_phrases() -> PhraseMatcher[frozenset[int]]:
    together: dict[tuple[str, ...], set[int]] = {}
    for phrase, true in _phrase_rows():
        together.setdefault(tuple(stem(word) for word in plain_words(phrase)), set()).update(true)
    return PhraseMatcher(
        (phrase, frozenset(true))
        for phrase, true in together.items()
        if not AMBIGUOUS_STEMS.issuperset(phrase)
    )


@dataclass(frozen=True)
class ParsedQuestion:
    """The meaning of a question: yes/no claims, topics, a request for the name, or nothing."""

    claims: tuple[frozenset[int], ...] = ()
    needs_any: bool = False
    topics: tuple[Topic, ...] = ()
    asks_secret: bool = False

    def is_true_of(self, row: int) -> bool:
        true = [row in claim for claim in self.claims]
        return any(true) if self.needs_any else all(true)


def parse_question(question: str) -> ParsedQuestion:
    """The meaning of a question.

    A yes/no question becomes claims, where the table can answer it; any other question the first
    two topics it asks for; a request for a name or a place is marked as such.
    """
    return _parse_question(question) if len(question) <= MAX_TEXT_LENGTH else ParsedQuestion()


@lru_cache(maxsize=4096)
def _parse_question(question: str) -> ParsedQuestion:
    tokens = plain_words(question)
    stems = [stem(word) for word in tokens]
    claims = _claim_phrases().all_matches(stems)
    if tokens and tokens[0] in AUXILIARIES and claims and not UNANSWERABLE_WORDS & set(tokens):
        return ParsedQuestion(claims=tuple(claims), needs_any="or" in tokens)
    topics = dict.fromkeys(topic_phrases().all_matches(stems))
    telling = [topic for topic in topics if topic.fact != "known"] or list(topics)
    return (
        ParsedQuestion(topics=tuple(telling[:2]))
        if telling
        else ParsedQuestion(asks_secret=bool(SECRET_WORDS & set(tokens)))
    )


def answer_content(row: int, question: str) -> tuple[object, ...]:
    """The content of an answer without its wording; equal for cities with the same answer."""
    parsed = parse_question(question)
    return bool(parsed.claims) and parsed.is_true_of(row), *(
        cities()[row].facts[topic.fact] for topic in parsed.topics
    )


def _fact_sentence(city: City, topic: Topic, pick: int) -> str:
    fact = city.facts[topic.fact]
    sentences = (
        topic.negative_sentences if fact == "no" and topic.negative_sentences else topic.sentences
    )
    return sentences[pick % len(sentences)].format(fact)


@dataclass(frozen=True)
class ScriptedOracle:
    """Answers from the table; `wording_seed` selects wordings.

    No answer names the city or its country.
    """

    wording_seed: int = 0

    def answer(self, hidden: str, question: str) -> str:
        """See `Oracle.answer`; `hidden` is one of the city's names or its listed name."""
        row = row_by_name()[hidden.lower()]
        parsed, pick = (
            parse_question(question),
            zlib.crc32(f"{self.wording_seed} {question}".encode("utf-8", "replace")),
        )
        if parsed.asks_secret:
            return REFUSAL_TEXT
        if parsed.claims:
            choice = YES_TEXTS if parsed.is_true_of(row) else NO_TEXTS
            return choice[pick % len(choice)]
        sentences = [_fact_sentence(cities()[row], topic, pick) for topic in parsed.topics] or [
            UNSURE_TEXTS[pick % len(UNSURE_TEXTS)]
        ]
        return censor_reply(cities()[row], " ".join(sentences))


QUESTIONS = tuple(topic.question for topic in TOPICS)
