"""`Lookup`: who is the boss of the pal of ann? (IGPO, arXiv 2510.14967; ARPO, arXiv 2507.19849)."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import Probe, Reply, flag, whole

NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal", "ian", "jon", "kim", "leo")
RELATIONS = ("boss", "pal", "aunt")
FIND = re.compile(r"find ([a-z]{1,9})")
ANSWER = re.compile(r"answer((?: [a-z]{1,9}){1,12})")


def f1(answer: str, gold: str) -> float:
    """2 |A and G| / (|A| + |G|), A and G the sets of words of two texts."""
    given, right = set(answer.split()), set(gold.split())
    return 2 * len(given & right) / (len(given) + len(right))


def _random(env: Environment, rng: np.random.Generator) -> str:
    """Finds or answers a uniform name."""
    assert isinstance(env, Lookup)
    return f"{('find', 'answer')[rng.integers(2)]} {env.names[rng.integers(len(env.names))]}"


def _guesser(env: Environment, rng: np.random.Generator) -> str:
    """Finds the first unread name of the way at half of the turns, else answers a uniform name that it has not read."""
    assert isinstance(env, Lookup)
    if rng.random() < 0.5:
        return _expert(env, rng)
    unread = [name for name in env.names if name not in env.read]
    return f"answer {(unread or env.names)[rng.integers(len(unread or env.names))]}"


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Finds one name of the way after the other, then answers."""
    assert isinstance(env, Lookup)
    unread = [name for name in env.way[:-1] if name not in env.read]
    return f"find {unread[0]}" if unread else f"answer {env.gold}"


class Lookup(Probe):
    """ "boss of pal of ann?": find ann, find her pal, answer with that one's boss.

    "find ann" is answered by her entry, "ann boss bob pal cat" (with `ambiguous` by so many others' too, in an order that tells
    nothing, set apart by ";"), an unknown name by "nobody"; "answer bob" ends the episode; anything else is answered by "?". The reward
    of an answer is its F1 with the right one over sets of words, or with `exact` 1 for the right one alone. Every relation leads through
    all `people` in one circle, so each entry that is read rules out answers before the last one tells.

    `info` says `legal`, `formatted`, `tool_calls`, `stopped` (it was answered), `answer` (the words, or None) and `gold`.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "mixture": Mixed(_expert, _random, 0.8), "guesser": _guesser, "expert": _expert}
    )

    def __init__(
        self,
        hops: int = 2,
        people: int = 6,
        relations: int = 2,
        ambiguous: int = 0,
        exact: bool = False,
        horizon: int = 8,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.names = NAMES[: whole("people", people, 3, len(NAMES))]
        self.relations = RELATIONS[: whole("relations", relations, 1, len(RELATIONS))]
        self.hops, self.exact = whole("hops", hops, 1, 3), flag("exact", exact)
        self.ambiguous = whole("ambiguous", ambiguous, 0, people - 1)
        self.horizon = whole("horizon", horizon, 1, 1000)
        self.rules = (
            f"Find out who is asked for, in at most {horizon} turns. find ann shows whom ann is tied to; answer bob ends the game.\n"
            f"The people are {', '.join(self.names)}."
        )
        self.store: Mapping[str, Mapping[str, str]] = {}  # name -> relation -> name
        self.asked: tuple[str, ...] = ()  # relations, the first to follow first
        self.way: tuple[str, ...] = ("", "")  # from the name in the question to the right answer
        self.shown: tuple[tuple[str, ...], ...] = ()  # whose entries each look-up returns, by the place of the name
        self.read: frozenset[str] = frozenset()

    @property
    def gold(self) -> str:
        return self.way[-1]

    def _draw(self) -> None:
        circles = {}
        for relation in self.relations:
            order = [self.names[i] for i in self.np_random.permutation(len(self.names))]
            circles[relation] = dict(zip(order, [*order[1:], order[0]]))
        self.store = {name: {relation: circle[name] for relation, circle in circles.items()} for name in self.names}
        self._ask()
        while len({*self.way[:-1]}) < self.hops:  # nobody is looked up twice; one relation alone never leads back so soon
            self._ask()
        self.shown = tuple(self._together(name) for name in self.names)

    def _ask(self) -> None:
        self.asked = tuple(self.relations[self.np_random.integers(len(self.relations))] for _ in range(self.hops))
        way = [self.names[self.np_random.integers(len(self.names))]]
        for relation in self.asked:
            way.append(self.store[way[-1]][relation])
        self.way = tuple(way)

    def _together(self, name: str) -> tuple[str, ...]:
        others = [other for other in self.names if other != name]
        together = [name, *(others[i] for i in self.np_random.permutation(len(others))[: self.ambiguous])]
        return tuple(together[i] for i in self.np_random.permutation(len(together)))

    def _begin(self) -> None:
        self.read = frozenset()

    def _question(self) -> str:
        return " of ".join((*reversed(self.asked), self.way[0])) + "?"

    def _entry(self, name: str) -> str:
        return " ".join((name, *(f"{relation} {other}" for relation, other in self.store[name].items())))

    def _reply(self, text: str) -> Reply:
        find, answered = FIND.fullmatch(text), ANSWER.fullmatch(text)
        formatted = find is not None or answered is not None
        words = answered[1].strip() if answered else None
        facts = {"legal": formatted, "formatted": formatted, "tool_calls": int(find is not None), "stopped": answered is not None}
        facts |= {"answer": words, "gold": self.gold}
        if words is not None:
            right = words == self.gold
            return Reply("Done.", {"outcome": float(right) if self.exact else f1(words, self.gold)}, facts, right)
        said = "?"
        if find:
            said = "nobody"
            if find[1] in self.names:
                self.read |= {*self.shown[self.names.index(find[1])]}
                said = "; ".join(map(self._entry, self.shown[self.names.index(find[1])]))
        return Reply(said, {"outcome": 0.0}, facts)
