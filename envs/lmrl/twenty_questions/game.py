"""`TwentyQuestions`: find an object by yes/no questions (LMRL-Gym, arXiv 2311.18232; the subset is ArCHer's, arXiv 2402.19446)."""

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.lmrl.oracles import Oracle, endpoint
from agentrl_jax.envs.lmrl.questions import HORIZON, Questions
from agentrl_jax.envs.lmrl.twenty_questions.asked import asked
from agentrl_jax.envs.lmrl.twenty_questions.scripted import ScriptedOracle, truth
from agentrl_jax.envs.lmrl.twenty_questions.success import is_done, last_word_is
from agentrl_jax.envs.lmrl.twenty_questions.table import attributes, guess, matrix, row_of, things
from agentrl_jax.envs.players import Mixed
from agentrl_jax.errors import UserError

SUBSET = ("football", "dog", "banana", "truck", "pants", "computer", "piano", "chair", "pen", "scissors")
# LMRL-Gym: the worst return, its data set's mean; then the expert's mean over all objects, measured here.
ANCHORS = (-20.0, -17.3, -7.158)


@cache
def rows_of(choice: str) -> tuple[int, ...]:
    """Which rows of the table are played. Raises UserError where the choice is unknown."""
    if choice not in ("all", "subset"):
        raise UserError(f"words must be all or subset, not {choice!r}")
    return tuple(range(len(things()))) if choice == "all" else tuple(row for name in SUBSET if (row := row_of(name)) is not None)


@lru_cache(maxsize=8192)
def _best_question(alive: frozenset[int], last: bool) -> str:
    """The attribute that splits the objects most evenly (the first in the table on a tie), or a guess where few are left."""
    rows = sorted(alive)
    if last or len(rows) <= 2:
        return guess(things()[rows[0]])
    yes = matrix()[rows].sum(axis=0)
    place = int(np.argmax(np.minimum(yes, len(rows) - yes)))
    return attributes()[place].question if 0 < yes[place] < len(rows) else guess(things()[rows[0]])


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform question: one for each attribute, and one for each object."""
    assert isinstance(env, TwentyQuestions)
    place = int(rng.integers(len(attributes()) + len(env.rows)))
    return attributes()[place].question if place < len(attributes()) else guess(things()[env.rows[place - len(attributes())]])


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Greedy information gain over the table, then a guess."""
    assert isinstance(env, TwentyQuestions)
    return _best_question(env.possible(), len(env.asked) == HORIZON - 1)


def mixture(prob_expert: float = 0.33) -> Player:
    """With `prob_expert` the expert's question, else a uniform one: a data policy, as LMRL-Gym's own are language models.

    The default's mean return is about that of LMRL-Gym's data set, -17.3.
    """
    return Mixed(_expert, _random, prob_expert)


class TwentyQuestions(Questions):
    """An object is to be found by at most 20 questions, which an oracle answers "Yes." or "No.".

    The history reads "Questions:\\n", "Is it a dog?\\n", "Yes.\\n", ... . A question is right where the answer is "Yes." and it is
    a guess (`is_done`); it earns 0 and ends the episode. Any other text earns -1 and is a question too. After the twentieth the
    episode has terminated.

    `words` is "all" (the table) or "subset" (ArCHer's ten). `oracle` is "scripted", or the endpoint of a language model as plain
    data, {"url": ..., "model": ..., "form": "lmrl" | "archer"}. `last_word_only` is ArCHer's test of a guess, under which objects
    of two words cannot be found. Reset option `target` names the object. Raises UserError where an option is unknown.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": _random, "mixture": mixture(), "expert": _expert})

    def __init__(
        self,
        words: str = "all",
        oracle: str | Mapping[str, Any] = "scripted",
        last_word_only: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.rows = rows_of(words)
        self.oracle = _oracle(oracle)
        self.last_word_only = last_word_only
        self.score_anchors = ANCHORS if words == "all" and not last_word_only else None
        self.rules = (
            f"Find the secret object, one of {len(self.rows)} everyday things, in {HORIZON} questions that are answered by yes or no.\n"
            "Ask in your own words, such as: Is it an animal? Does it have wheels? Is it bigger than a chair? What is not understood is\n"
            'answered "No.". To win, guess the object by a question that ends with its name, such as: Is it a bicycle?'
        )
        self._row = self.rows[0]

    @property
    def target(self) -> str:
        """The object to find, as LMRL-Gym would list it: "Airplane;Plane"."""
        return things()[self._row].word

    def possible(self) -> frozenset[int]:
        """The rows of which the scripted oracle would have answered all questions so far alike; all where there is none."""
        alive = frozenset(self.rows)
        for question, answer in self.asked:
            alive = alive & truth(question) if answer == "Yes." else alive - truth(question)
        return alive or frozenset(self.rows)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"target"}:
            raise UserError(f"TwentyQuestions has no reset option {sorted(unknown)}; it has: target")
        if "target" in options:
            row = row_of(options["target"]) if isinstance(options["target"], str) else None
            if row not in self.rows:
                raise UserError(f"target must be one of the {len(self.rows)} objects, not {options['target']!r}")
            self._row = row
        else:
            self._row = self.rows[int(self.np_random.integers(len(self.rows)))]
        return self._begin()

    def _found(self, question: str, answer: str) -> bool:
        guessed = last_word_is if self.last_word_only else is_done
        return answer == "Yes." and guessed(things()[self._row].names, question)


def _oracle(choice: str | Mapping[str, Any]) -> Oracle:
    if choice == "scripted":
        return ScriptedOracle()
    if not isinstance(choice, Mapping):
        return asked(endpoint(choice))
    options = {"max_tokens": 4, **choice}
    return asked(endpoint({name: value for name, value in options.items() if name != "form"}), options.get("form", "lmrl"))
