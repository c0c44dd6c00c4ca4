"""Questions about a few generated facts, as text or as a conversation."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.corpus.exercise import Exercise, text_exercise
from agentrl_jax.corpus.words import (
    ANIMALS,
    CITIES,
    COLORS,
    JOBS,
    PEOPLE,
    THINGS,
    choice,
    integer,
    sample,
)
from agentrl_jax.documents import ChatDocument
from agentrl_jax.messages import assistant, user


@dataclass(frozen=True)
class Person:
    """All that is known of a person."""

    name: str
    city: str
    job: str
    color: str
    thing: str
    animal: str

    @property
    def sentences(self) -> tuple[str, ...]:
        return (
            f"{self.name} lives in {self.city}.",
            f"{self.name} is a {self.job}.",
            f"{self.name} owns a {self.color} {self.thing}.",
            f"{self.name} has a pet {self.animal}.",
        )


def questions(rng: np.random.Generator) -> Exercise:
    """Facts in a random order, then a question with a short answer."""
    people = _sample_people(rng, integer(rng, 2, 4))
    facts = [sentence for person in people for sentence in person.sentences]
    passage = " ".join(sample(rng, facts, len(facts)))
    ask = choice(rng, (_attribute, _attribute, _owner, _second_hop, _is_so, _count))
    question, answer = ask(rng, people)
    if rng.random() < 0.5:
        return text_exercise(f"{passage}\nQ: {question}\nA:", f" {answer}")
    return Exercise(ChatDocument((user(f"{passage}\n{question}"),)), assistant(answer))


def _sample_people(rng: np.random.Generator, count: int) -> Sequence[Person]:
    """People who share cities and jobs, but no thing and no animal."""
    names, things = sample(rng, PEOPLE, count), sample(rng, THINGS, count)
    animals, cities = sample(rng, ANIMALS, count), sample(rng, CITIES, 3)
    return [
        Person(name, choice(rng, cities), choice(rng, JOBS), choice(rng, COLORS), thing, animal)
        for name, thing, animal in zip(names, things, animals)
    ]


def _attribute(rng: np.random.Generator, people: Sequence[Person]) -> tuple[str, str]:
    person = choice(rng, people)
    return choice(
        rng,
        (
            (f"Where does {person.name} live?", person.city),
            (f"What is the job of {person.name}?", person.job),
            (f"What color is the {person.thing} of {person.name}?", person.color),
            (f"What does {person.name} own?", f"a {person.color} {person.thing}"),
            (f"Which pet does {person.name} have?", f"a {person.animal}"),
        ),
    )


def _owner(rng: np.random.Generator, people: Sequence[Person]) -> tuple[str, str]:
    person = choice(rng, people)
    thing = choice(rng, (f"owns the {person.color} {person.thing}", f"has a pet {person.animal}"))
    return f"Who {thing}?", person.name


def _second_hop(rng: np.random.Generator, people: Sequence[Person]) -> tuple[str, str]:
    """The person is named by what is theirs."""
    person = choice(rng, people)
    named = choice(rng, (f"owner of the {person.thing}", f"owner of the {person.animal}"))
    return choice(
        rng,
        (
            (f"Where does the {named} live?", person.city),
            (f"What is the job of the {named}?", person.job),
        ),
    )


def _is_so(rng: np.random.Generator, people: Sequence[Person]) -> tuple[str, str]:
    person, other = choice(rng, people), choice(rng, people)
    question, is_so = choice(
        rng,
        (
            (f"Does {person.name} live in {other.city}?", person.city == other.city),
            (f"Is {person.name} a {other.job}?", person.job == other.job),
            (f"Does {person.name} have a pet {other.animal}?", person.animal == other.animal),
        ),
    )
    return question, "Yes" if is_so else "No"


def _count(rng: np.random.Generator, people: Sequence[Person]) -> tuple[str, str]:
    city = choice(rng, people).city
    return f"How many people live in {city}?", str(sum(p.city == city for p in people))
