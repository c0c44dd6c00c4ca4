"""`World`: the entities of an encyclopedia and the facts about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from agentrl_jax.envs.search.names import draw_names, stem_of

SHARES = {"person": 0.4, "town": 0.2, "book": 0.2, "company": 0.12, "river": 0.08}
# relation -> (kind of the subject, kind of the object); each subject has one object
LINKS = {
    "birthplace": ("person", "town"),
    "employer": ("person", "company"),
    "mayor": ("town", "person"),
    "waterway": ("town", "river"),
    "author": ("book", "person"),
    "setting": ("book", "town"),
    "founder": ("company", "person"),
    "seat": ("company", "town"),
    "mouth": ("river", "river"),
}
INJECTIVE = ("mayor", "founder")  # no object twice
# number -> (kind, lowest, highest)
NUMBERS = {
    "born": ("person", 1720, 1990),
    "settled": ("town", 900, 1850),
    "published": ("book", 1750, 2020),
    "opened": ("company", 1780, 2000),
    "length": ("river", 11, 990),
}


@dataclass(frozen=True)
class World:
    """Entities by number, and their facts.

    Args:
        titles: by entity.
        kinds: by entity.
        members: the entities of each kind.
        links: relation -> subject -> object.
        numbers: number -> entity -> value (a year, or kilometers).
    """

    seed: int
    titles: tuple[str, ...]
    kinds: tuple[str, ...]
    members: Mapping[str, range]
    links: Mapping[str, Mapping[int, int]]
    numbers: Mapping[str, Mapping[int, int]]

    @cached_property
    def inverses(self) -> Mapping[str, Mapping[int, tuple[int, ...]]]:
        """Relation -> object -> its subjects."""
        inverses: dict[str, dict[int, tuple[int, ...]]] = {}
        for relation, pairs in self.links.items():
            subjects = inverses.setdefault(relation, {})
            for subject, target in pairs.items():
                subjects[target] = (*subjects.get(target, ()), subject)
        return inverses

    @cached_property
    def similar(self) -> Mapping[int, int]:
        """Another entity of the same kind with, mostly, a similar title."""
        neighbors: dict[int, int] = {}
        for kind, members in self.members.items():
            ordered = sorted(members, key=lambda entity: stem_of(kind, self.titles[entity]))
            neighbors.update(zip(ordered, [*ordered[1:], ordered[0]]))
        return neighbors

    def triples(self) -> list[tuple[str, str, str]]:
        """Every fact: (title, relation or number, title or digits)."""
        links = [
            (self.titles[subject], relation, self.titles[target])
            for relation, pairs in self.links.items()
            for subject, target in pairs.items()
        ]
        numbers = [
            (self.titles[entity], name, str(value))
            for name, values in self.numbers.items()
            for entity, value in values.items()
        ]
        return links + numbers


@lru_cache(maxsize=4)
def make_world(seed: int, pages: int) -> World:
    """The world of a seed, with one entity a page."""
    rng = np.random.default_rng([seed, pages])
    counts = {kind: max(2, int(share * pages)) for kind, share in SHARES.items()}
    counts["person"] += pages - sum(counts.values())
    names, members, start = draw_names(rng, counts), {}, 0
    for kind, count in counts.items():
        members[kind] = range(start, start + count)
        start += count
    links = {}
    for relation, (kind, target_kind) in LINKS.items():
        subjects, targets = members[kind], members[target_kind]
        if relation in INJECTIVE:
            chosen = rng.permutation(len(targets))[: len(subjects)]
        elif kind == target_kind:  # never itself
            steps = rng.integers(1, len(targets), size=len(subjects))
            chosen = (np.arange(len(subjects)) + steps) % len(targets)
        else:
            chosen = rng.integers(len(targets), size=len(subjects))
        links[relation] = {s: targets[i] for s, i in zip(subjects, chosen.tolist())}
    numbers = {
        name: dict(
            zip(members[kind], rng.integers(low, high + 1, size=len(members[kind])).tolist())
        )
        for name, (kind, low, high) in NUMBERS.items()
    }
    titles = tuple(name for kind in counts for name in names[kind])
    kinds = tuple(kind for kind, count in counts.items() for _ in range(count))
    return World(seed, titles, kinds, members, links, numbers)
