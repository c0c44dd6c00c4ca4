"""Questions over one to four hops, each with one answer by construction."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.envs.search.answers import normalized
from agentrl_jax.envs.search.facts import LINKS, NUMBERS, World
from agentrl_jax.envs.search.phrases import (
    COMPARISONS,
    COUNTS,
    FACT_WORDS,
    NOUN_PHRASES,
    NUMBER_QUESTIONS,
    WHICH,
)
from agentrl_jax.errors import UserError

KINDS = ("chain", "comparison", "count")
SPLITS = ("train", "pages", "test")
FACTS = (*LINKS, *NUMBERS)
MAX_HOPS = 4
MAX_COUNT = 3
_MAX_DRAWS = 10_000


@dataclass(frozen=True)
class Hop:
    """One look-up on the way to an answer.

    Args:
        queries: what to search for, the later ones where the earlier ones find nothing.
        titles: the pages that hold the fact.
        fact: what they tell, as a sentence; empty: unknown.
    """

    queries: tuple[str, ...]
    titles: tuple[str, ...]
    fact: str = ""


@dataclass(frozen=True)
class Question:
    """A question, its right answers, and the look-ups that lead to them.

    Args:
        kind: "chain", "comparison" or "count", or the type that a file names.
        anchors: titles that the question names.
        template: the question with {} for each of them.
    """

    text: str
    answers: tuple[str, ...]
    kind: str
    hops: tuple[Hop, ...]
    anchors: tuple[str, ...] = ()
    template: str = ""


@dataclass(frozen=True)
class _Walk:
    """A noun phrase, the entity that it means, and the hops from its anchor."""

    phrase: str
    entity: int
    hops: tuple[Hop, ...]
    entities: tuple[int, ...]


def given_question(pair: Any) -> Question:
    """A question that is given with its right answer, without look-ups.

    Raises:
        UserError: it is not a pair of texts.
    """
    is_pair = isinstance(pair, list | tuple) and len(pair) == 2
    if not is_pair or not all(isinstance(text, str) and text.strip() for text in pair):
        raise UserError(f"the reset option question is a text and its answer, not {pair!r:.200}")
    return Question(pair[0].strip(), (pair[1].strip(),), "given", ())


def split_of(title: str) -> str:
    """ "test" for one entity in 8, by the hash of its title, else "train"."""
    is_test = hashlib.sha256(title.encode()).digest()[0] % 8 == 0
    return "test" if is_test else "train"


def _queries(title: str, name: str) -> tuple[str, ...]:
    """Searches for a fact about a title."""
    return f"{title} {FACT_WORDS[name]}", title


def _number_hop(title: str, name: str, value: str) -> Hop:
    return Hop(_queries(title, name), (title,), f"{name} of {title} is {value}")


def _leads(kind: str, owner: str) -> bool:
    """Whether a relation leads from one kind to another."""
    return any(LINKS[r][i] == kind and LINKS[r][not i] == owner for r, i in NOUN_PHRASES)


def _question(
    world: World,
    frame: str,
    walks: Sequence[_Walk],
    answer: str,
    kind: str,
    hops: tuple[Hop, ...],
) -> Question | None:
    """The question; None where its text holds the answer, which only a comparison names."""
    template = frame.format(*(walk.phrase for walk in walks))
    anchors = tuple(world.titles[walk.entities[0]] for walk in walks)
    text = template.format(*anchors)
    is_named = f" {normalized(answer)} " in f" {normalized(text)} "
    names_answer = kind == "comparison" and len(hops) == 2
    if is_named and not names_answer:
        return None
    return Question(text, (answer,), kind, hops, anchors, template)


@dataclass(frozen=True)
class _QuestionSampler:
    """Draws questions of each kind.

    Args:
        rng: of all that is drawn.
        world: that the questions are about.
        split: of the anchors and of the phrasings.
        facts: the relations and numbers that questions may be over.
    """

    rng: np.random.Generator
    world: World
    split: str
    facts: Collection[str]

    def _phrasing(self, phrasings: Sequence[str]) -> str:
        """The last phrasing in the test split, else one of the others."""
        return (
            phrasings[-1]
            if self.split == "test"
            else phrasings[int(self.rng.integers(len(phrasings) - 1))]
        )

    def _anchor(self, kind: str) -> int:
        """A uniform entity of a kind and split."""
        while True:
            members = self.world.members[kind]
            entity = members[int(self.rng.integers(len(members)))]
            if (split_of(self.world.titles[entity]) == "test") == (self.split != "train"):
                return entity

    def _walk(self, kind: str, length: int) -> _Walk | None:
        """A walk of so many relations from an entity of a kind; None where it ends early."""
        entity = self._anchor(kind)
        hops: list[Hop] = []
        phrase, path, last = "{}", [entity], ""
        for _ in range(length):
            steps = [
                (relation, inverse)
                for relation, inverse in NOUN_PHRASES
                if LINKS[relation][inverse] == self.world.kinds[entity]
                and relation in self.facts
                and relation != last
            ]
            if not steps:
                return None
            relation, inverse = steps[int(self.rng.integers(len(steps)))]
            phrase = self._phrasing(NOUN_PHRASES[relation, inverse]).format(phrase)
            origin = self.world.titles[entity]
            if inverse:
                subjects = self.world.inverses[relation].get(entity, ())
                if len(subjects) != 1:
                    return None
                entity = subjects[0]
                page = self.world.titles[entity]
            else:
                entity = self.world.links[relation][entity]
                page = origin
            if entity in path:
                return None
            text = NOUN_PHRASES[relation, inverse][0].format(origin)
            hops.append(
                Hop(_queries(origin, relation), (page,), f"{text} is {self.world.titles[entity]}")
            )
            path.append(entity)
            last = relation
        return _Walk(phrase, entity, tuple(hops), tuple(path))

    def chain(self, hops: int) -> Question | None:
        """Relations from an anchor to an entity or, in half of the questions, to its number."""
        kind = list(LINKS)[int(self.rng.integers(len(LINKS)))]
        has_number = bool(self.rng.random() < 0.5)
        walk = self._walk(LINKS[kind][0], hops - has_number)
        if walk is None:
            return None
        kind, title = self.world.kinds[walk.entity], self.world.titles[walk.entity]
        path = walk.hops
        if has_number:
            name = next(name for name, (owner, *_) in NUMBERS.items() if owner == kind)
            if name not in self.facts:
                return None
            answer = str(self.world.numbers[name][walk.entity])
            frame = self._phrasing(NUMBER_QUESTIONS[name])
            path = (*path, _number_hop(title, name, answer))
        else:
            answer, frame = title, WHICH.get(kind, WHICH[""])
        return _question(self.world, frame, [walk], answer, "chain", path)

    def comparison(self, hops: int) -> Question | None:
        """Which of two entities has the smaller number; each is hops / 2 - 1 relations away."""
        names = [name for name in NUMBERS if name in self.facts]
        if not names:
            return None
        name = names[int(self.rng.integers(len(names)))]
        owner = NUMBERS[name][0]
        starts = [kind for kind in self.world.members if hops == 2 or _leads(kind, owner)]
        if hops % 2 or not starts:
            return None
        walks = []
        for _ in range(2):
            start = owner if hops == 2 else starts[int(self.rng.integers(len(starts)))]
            walk = self._walk(start, hops // 2 - 1)
            if walk is None or self.world.kinds[walk.entity] != owner:
                return None
            walks.append(walk)
        values = [self.world.numbers[name][walk.entity] for walk in walks]
        if values[0] == values[1] or set(walks[0].entities) & set(walks[1].entities):
            return None
        answer = self.world.titles[walks[values[0] > values[1]].entity]
        path: list[Hop] = []
        for walk, value in zip(walks, values):
            title = self.world.titles[walk.entity]
            path += [*walk.hops, _number_hop(title, name, str(value))]
        frame = self._phrasing(COMPARISONS[name])
        return _question(self.world, frame, walks, answer, "comparison", tuple(path))

    def count(self, hops: int) -> Question | None:
        """How many subjects, 1 to 3, an entity has in a relation."""
        relations = [relation for relation in COUNTS if relation in self.facts]
        if not relations:
            return None
        relation = relations[int(self.rng.integers(len(relations)))]
        owner = LINKS[relation][1]
        kinds = [owner] if hops == 1 else list(self.world.members)
        walk = self._walk(kinds[int(self.rng.integers(len(kinds)))], hops - 1)
        if walk is None or self.world.kinds[walk.entity] != owner:
            return None
        subjects = self.world.inverses[relation].get(walk.entity, ())
        if not 1 <= len(subjects) <= MAX_COUNT:
            return None
        title, pages = self.world.titles[walk.entity], tuple(self.world.titles[s] for s in subjects)
        fact = f"{relation} {title}: {', '.join(pages)}"
        path = (*walk.hops, Hop(_queries(title, relation), pages, fact))
        frame = self._phrasing(COUNTS[relation])
        return _question(self.world, frame, [walk], str(len(subjects)), "count", path)


def draw_question(
    rng: np.random.Generator,
    world: World,
    kinds: Sequence[str],
    hops: Sequence[int],
    split: str,
    facts: Collection[str] = FACTS,
) -> Question:
    """A question of a uniform kind and number of hops, over some of the relations and numbers.

    The answer is unique: relations are functions, they are followed backwards only where there is
    one subject, compared values differ, and counts are over all facts.
    """
    sampler = _QuestionSampler(rng, world, split, facts)
    of_kind = {"chain": sampler.chain, "comparison": sampler.comparison, "count": sampler.count}
    for _ in range(_MAX_DRAWS):
        number = hops[int(rng.integers(len(hops)))]
        possible = [kind for kind in kinds if kind != "comparison" or number in (2, 4)]
        if possible:
            question = of_kind[possible[int(rng.integers(len(possible)))]](number)
            if question is not None:
                return question
    raise UserError(
        f"there is no question of {' or '.join(kinds)} with {hops} hops over {', '.join(facts)}"
    )


def shared_questions(world: World, count: int, seed: int = 0) -> int:
    """How many anchors and templates both train and test have in `count` questions; must be 0."""
    seen: dict[str, set[str]] = {}
    for split in ("train", "test"):
        rng = np.random.default_rng(seed)
        drawn_set = [draw_question(rng, world, KINDS, range(1, 5), split) for _ in range(count)]
        seen[split] = {text for q in drawn_set for text in (*q.anchors, q.template)}
    return len(seen["train"] & seen["test"])
