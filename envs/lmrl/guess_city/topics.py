"""The topics of Guess My City: for each fact a question, phrases that ask for it, and answers."""

from dataclasses import dataclass
from functools import cache

from agentrl_jax.envs.lmrl.phrases import PhraseMatcher, split_words, stem


@dataclass(frozen=True)
class Topic:
    """A fact that can be asked for.

    `sentences` have "{}" for the fact. For a yes/no fact they state it without "{}", and
    `negative_sentences` its negation.
    """

    fact: str
    question: str
    phrases: str  # separated by "|"
    sentences: tuple[str, ...]
    negative_sentences: tuple[str, ...] = ()


TOPICS = (
    Topic(
        "continent",
        "Which continent is it on?",
        "continent",
        ("It is in {}.", "The continent is {}."),
    ),
    Topic(
        "region",
        "What part of the world is it in?",
        "region|part of the world",
        ("It is in {}.", "You would call the region {}."),
    ),
    Topic(
        "language",
        "What language do people speak there?",
        "language|speak|spoken|tongue",
        ("People speak {}.", "You mostly hear {}."),
    ),
    Topic(
        "currency",
        "What is the currency?",
        "currency|money|pay|coin",
        ("You pay with {}.", "The money is {}."),
    ),
    Topic(
        "religion",
        "What is the main religion?",
        "religion|faith|pray|worship|temple|church|mosque",
        ("Mostly {}.", "Most people would say {}."),
    ),
    Topic(
        "driving",
        "Which side of the road do people drive on?",
        "side of the road|drive|traffic|driving",
        ("People drive on the {}.", "Cars keep to the {} side."),
    ),
    Topic(
        "government",
        "What is the form of government?",
        "government|king|queen|politic|president|ruler",
        ("The state is a {}.", "We live in a {}."),
    ),
    Topic("flag", "What does the flag look like?", "flag", ("The flag shows {}.", "Think of {}.")),
    Topic(
        "dish",
        "What food is it known for?",
        "food|dish|eat|cuisine|meal|restaurant|drink",
        ("Try the {}.", "People love {}."),
    ),
    Topic(
        "sport",
        "What is the most popular sport?",
        "sport|game|play|team|athlete",
        ("Everybody talks about {}.", "The favorite is {}."),
    ),
    Topic(
        "hemisphere",
        "Which hemisphere is it in?",
        "hemisphere|equator",
        ("It is in the {} hemisphere.", "The {} one."),
    ),
    Topic(
        "latitude",
        "What is its latitude?",
        "latitude|how far north|how far south|degree",
        ("It lies {}.", "The latitude is {}."),
    ),
    Topic(
        "noon",
        "What is the time zone?",
        "time zone|timezone|clock|longitude|time difference",
        ("By the sun the time is {}.", "Our noon is {}."),
    ),
    Topic(
        "capital",
        "Is it the capital of its country?",
        "capital|seat of government",
        ("Yes, it is the capital.", "Yes, the government sits here."),
        ("No, the capital is elsewhere.", "No, it is not the capital."),
    ),
    Topic(
        "population",
        "How many people live there?",
        "population|how many person|how big|how large|size|inhabitant",
        ("There are {}.", "It has {}."),
    ),
    Topic(
        "coast",
        "Is it on the coast?",
        "coast|sea|ocean|beach|seaside|shore",
        ("Yes, it is by the sea.", "Yes, you can smell salt water."),
        ("No, it is not on the coast.", "No, there is no sea here."),
    ),
    Topic(
        "water",
        "What river or sea is it on?",
        "river or sea|river|lake|water|harbor|bay|canal",
        ("It is by {}.", "The water you see is {}."),
    ),
    Topic(
        "mountains",
        "Are there mountains?",
        "mountain|hill|ski|volcano",
        ("Yes, there are mountains close by.", "Yes, you can see mountains."),
        ("No, there are no mountains close by.", "No, not really."),
    ),
    Topic(
        "climate",
        "What is the climate like?",
        "climate|weather|temperature|rain|snow|winter|summer|hot|cold|warm|sunny",
        ("The weather is {}.", "I would call it {}."),
    ),
    Topic(
        "altitude",
        "How high above the sea is it?",
        "high above the sea|altitude|elevation|above the sea|above sea level|how high",
        ("It lies {}.", "It is {}."),
    ),
    Topic(
        "age",
        "How old is it?",
        "how old|age|history|historic|found|old|built|origin",
        ("Its origins are {}.", "I would say {}."),
    ),
    Topic(
        "metro",
        "Does it have a metro?",
        "metro|subway|underground|public transport|transport|train",
        ("Yes, there is a metro.", "Yes, you can ride underground."),
        ("No, there is no metro.", "No, not a real one."),
    ),
    Topic(
        "olympics",
        "When did it host the Olympic Games?",
        "olympic game|olympic|olympics",
        ("It did in {}.", "That was in {}."),
        ("It never did.", "Not so far."),
    ),
    Topic(
        "landmark",
        "What is its most famous landmark?",
        "landmark|monument|building|sight|see|visit|attraction|tourist|statue|tower",
        ("You should see {}.", "Everybody takes pictures of {}."),
    ),
    Topic(
        "known",
        "What is it known for?",
        "known for|know for|famous|special|best known|popular|culture|unique|interesting",
        ("It is known for {}.", "People think of {}."),
    ),
    Topic(
        "industry",
        "What is the main industry?",
        "industry|economy|job|work|business|company|make a living|make money",
        ("People live from {}.", "It is mostly {}."),
    ),
    Topic(
        "district",
        "What is a famous quarter?",
        "quarter|district|neighborhood|neighbourhood|street|area|nightlife",
        ("You may have heard of {}.", "Many go to {}."),
    ),
)


@cache
def topic_phrases() -> PhraseMatcher[Topic]:
    """The topics by the stems of their phrases."""
    return PhraseMatcher(
        ([stem(word) for word in split_words(phrase)], topic)
        for topic in TOPICS
        for phrase in topic.phrases.split("|")
    )
