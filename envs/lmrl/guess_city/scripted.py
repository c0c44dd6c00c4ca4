"""The scripted oracle of Guess My City: open questions, answered in one or two sentences from the facts."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from agentrl_jax.envs.lmrl.guess_city.names import REFUSAL, kept_secret, plain, rows
from agentrl_jax.envs.lmrl.guess_city.table import City, cities
from agentrl_jax.envs.lmrl.guess_city.topics import TOPICS, Topic, asked_for
from agentrl_jax.envs.lmrl.phrases import LONGEST, Phrases, stem

AUXILIARIES = frozenset(
    ["is", "are", "does", "do", "can", "could", "has", "have", "was", "did", "isn't", "aren't", "doesn't", "don't", "so"]
)
SECRETS = frozenset(["name", "names", "called", "country", "nation", "where", "spell", "letter", "letters", "located", "answer", "reveal"])
# What a yes or no cannot be told of from the table.
BEYOND = frozenset(["near", "nearby", "close", "far", "like", "similar", "between", "not", "never", "than", "without"])
AGREED, DENIED = ("Yes, that is right.", "Yes, it is so.", "Yes."), ("No, that is not right.", "No, it is not so.", "No.")
UNSURE = ("I am not sure about that.", "I don't know.", "I can't tell you that.")
ORDINARY = frozenset(["real", "sol", "won", "rand", "run", "box"])  # stems of currencies and sports that mostly mean something else
# Words for the value of a fact: (fact, part of its value) -> what people say.
VALUES = {
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


def _spoken() -> Iterator[tuple[str, set[int]]]:
    """Phrases and the cities of which each is true; the same phrase may come more than once."""
    for (fact, part), phrases in VALUES.items():
        for phrase in phrases.split("|"):
            yield phrase, {row for row, city in enumerate(cities()) if f" {part}" in f" {city.facts[fact]}"}
    for row, city in enumerate(cities()):
        for name in (*city.names, *city.countries):
            yield name, {row}
        for word in plain(city.facts["language"].replace(" and ", " ").replace(",", "")):
            yield word, {row}
        for fact in ("region", "currency", "dish", "sport", "landmark"):
            yield city.facts[fact].removeprefix("the ").removeprefix("a "), {row}


@cache
def _claims() -> Phrases[frozenset[int]]:
    together: dict[tuple[str, ...], set[int]] = {}
    for phrase, true in _spoken():
        together.setdefault(tuple(stem(word) for word in plain(phrase)), set()).update(true)
    return Phrases((phrase, frozenset(true)) for phrase, true in together.items() if not ORDINARY.issuperset(phrase))


@dataclass(frozen=True)
class Reading:
    """What a question asks, whichever city is hidden: a yes or no about claims, facts to be told, a name, or nothing."""

    claims: tuple[frozenset[int], ...] = ()
    any_of: bool = False
    topics: tuple[Topic, ...] = ()
    secret: bool = False

    def holds(self, row: int) -> bool:
        true = [row in claim for claim in self.claims]
        return any(true) if self.any_of else all(true)


def read(question: str) -> Reading:
    """A question that begins like one of yes or no is judged by its claims, where the table can; any other one is told the first
    two facts that it asks for; and one that asks for a name or a place is refused."""
    return _read(question) if len(question) <= LONGEST else Reading()


@lru_cache(maxsize=4096)
def _read(question: str) -> Reading:
    tokens = plain(question)
    stems = [stem(word) for word in tokens]
    claims = _claims().within(stems)
    if tokens and tokens[0] in AUXILIARIES and claims and not BEYOND & set(tokens):
        return Reading(claims=tuple(claims), any_of="or" in tokens)
    topics = dict.fromkeys(asked_for().within(stems))
    telling = [topic for topic in topics if topic.fact != "known"] or list(topics)
    return Reading(topics=tuple(telling[:2])) if telling else Reading(secret=bool(SECRETS & set(tokens)))


def content(row: int, question: str) -> tuple[object, ...]:
    """What a listener learns, wording apart: equal for two cities of which the same is said."""
    asked = read(question)
    return bool(asked.claims) and asked.holds(row), *(cities()[row].facts[topic.fact] for topic in asked.topics)


def _sentence(city: City, topic: Topic, pick: int) -> str:
    fact = city.facts[topic.fact]
    sentences = topic.denied if fact == "no" and topic.denied else topic.sentences
    return sentences[pick % len(sentences)].format(fact)


@dataclass(frozen=True)
class ScriptedOracle:
    """Answers from the table; `variety` chooses between wordings. No answer names the city or its country."""

    variety: int = 0

    def answer(self, hidden: str, question: str) -> str:
        """See `Oracle.answer`; `hidden` is a city of the table by one of its names, or as LMRL-Gym lists it ("paris,france")."""
        row = rows()[hidden.lower()]
        asked, pick = read(question), zlib.crc32(f"{self.variety} {question}".encode("utf-8", "replace"))
        if asked.secret:
            return REFUSAL
        if asked.claims:
            choice = AGREED if asked.holds(row) else DENIED
            return choice[pick % len(choice)]
        sentences = [_sentence(cities()[row], topic, pick) for topic in asked.topics] or [UNSURE[pick % len(UNSURE)]]
        return kept_secret(cities()[row], " ".join(sentences))


QUESTIONS = tuple(topic.question for topic in TOPICS)
