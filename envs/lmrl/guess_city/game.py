"""`GuessCity`: find a city by open questions (LMRL-Gym, arXiv 2311.18232, by its intent; ArCHer, arXiv 2402.19446)."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.lmrl.guess_city.asked import asked
from agentrl_jax.envs.lmrl.guess_city.names import names_one, rows
from agentrl_jax.envs.lmrl.guess_city.scripted import QUESTIONS, ScriptedOracle, content
from agentrl_jax.envs.lmrl.guess_city.table import cities
from agentrl_jax.envs.lmrl.oracles import endpoint
from agentrl_jax.envs.lmrl.questions import HORIZON, Questions
from agentrl_jax.envs.players import Mixed
from agentrl_jax.errors import UserError

# LMRL-Gym: the worst return, its data set's mean; then the expert's mean over all cities, measured here.
ANCHORS = (-20.0, -18.8, -1.0)


def guess(row: int) -> str:
    """The question that guesses a city."""
    return f"Is your city {cities()[row].names[0]}?"


@lru_cache(maxsize=1024)
def _best_question(alive: frozenset[int], last: bool) -> str:
    """The question whose answer tells most about the city (the first topic on a tie), or a guess where few are left."""
    if last or len(alive) <= 2:
        return guess(min(alive))

    def remaining(question: str) -> float:
        counts = np.array(list(Counter(content(row, question) for row in alive).values()))
        return round(float(np.sum(counts * np.log(counts))), 9)  # the entropy left, times the number of cities

    best = min(QUESTIONS, key=remaining)
    return best if remaining(best) < round(len(alive) * float(np.log(len(alive))), 9) else guess(min(alive))


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform question: one for each topic, and one for each city."""
    place = int(rng.integers(len(QUESTIONS) + len(cities())))
    return QUESTIONS[place] if place < len(QUESTIONS) else guess(place - len(QUESTIONS))


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Greedy information gain over the table, then a guess."""
    assert isinstance(env, GuessCity)
    return _best_question(env.possible(), len(env.asked) == HORIZON - 1)


def mixture(prob_expert: float = 0.03) -> Player:
    """With `prob_expert` the expert's question, else a uniform one: a data policy, as LMRL-Gym's own are language models.

    Uniform questions alone have the mean return of LMRL-Gym's data set, -18.8; the default's is higher.
    """
    return Mixed(_expert, _random, prob_expert)


class GuessCity(Questions):
    """A city is to be found by at most 20 open questions, which an oracle answers in a sentence or two.

    The history reads "Questions:\\n", "What language do people speak there?\\n", "People speak French.\\n", ... . A question in which
    the city's name occurs as whole words earns 0 and ends the episode, whatever is answered; any other text earns -1. After the
    twentieth the episode has terminated. No answer names the city or its country.

    `oracle` is "scripted", or the endpoint of a language model as plain data, {"url": ..., "model": ...}. `character_comparison`
    is upstream's test, which compares letters with words, so that nobody ever wins. Reset option `target` names the city.
    Raises UserError where an option is unknown.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": _random, "mixture": mixture(), "expert": _expert})

    def __init__(
        self, oracle: str | Mapping[str, Any] = "scripted", character_comparison: bool = False, render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        self.oracle = ScriptedOracle() if oracle == "scripted" else asked(endpoint(oracle))
        self.character_comparison = character_comparison
        self.score_anchors = None if character_comparison else ANCHORS
        self.rules = (
            f"Find the secret city, one of {len(cities())} all over the world, in {HORIZON} questions.\n"
            "Ask in your own words, such as: What language do people speak there? Is it by the sea? What is it known for?\n"
            "You win with a question that names the city, such as: Is your city Tokyo? Its name and its country are never told."
        )
        self._row = 0

    @property
    def target(self) -> str:
        """The city to find, as LMRL-Gym would list it: "paris,france"."""
        return cities()[self._row].word

    def possible(self) -> frozenset[int]:
        """The cities of which the scripted oracle would have said the same so far."""
        alive = frozenset(range(len(cities())))
        for question, _ in self.asked:
            told = content(self._row, question)
            alive = frozenset(row for row in alive if content(row, question) == told)
        return alive

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"target"}:
            raise UserError(f"GuessCity has no reset option {sorted(unknown)}; it has: target")
        row, variety = (int(number) for number in self.np_random.integers([len(cities()), 2**31]))
        if "target" in options:
            named = rows().get(options["target"].lower()) if isinstance(options["target"], str) else None
            if named is None:
                raise UserError(f"target must be one of the {len(cities())} cities, not {options['target']!r}")
            row = named
        self._row = row
        if isinstance(self.oracle, ScriptedOracle):
            self.oracle = dataclasses.replace(self.oracle, variety=variety)
        return self._begin()

    def _found(self, question: str, answer: str) -> bool:
        return not self.character_comparison and names_one(question, cities()[self._row].names)
