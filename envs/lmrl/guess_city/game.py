"""`GuessCity`: find a city by open questions (LMRL-Gym, arXiv 2311.18232; ArCHer, 2402.19446).

It implements the intent of LMRL-Gym's game, whose published test of a guess never succeeds.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, ScriptedPolicy
from agentrl_jax.envs.lmrl.guess_city.knowledge import cities
from agentrl_jax.envs.lmrl.guess_city.llm_oracle import make_llm_oracle
from agentrl_jax.envs.lmrl.guess_city.name_matching import mentions_name, row_by_name
from agentrl_jax.envs.lmrl.guess_city.scripted import QUESTIONS, ScriptedOracle, answer_content
from agentrl_jax.envs.lmrl.guessing_game import HORIZON, GuessingGame
from agentrl_jax.envs.lmrl.oracles import make_endpoint
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError

# The worst return, the mean of LMRL-Gym's dataset, and the expert's mean over all cities.
ANCHORS = (-20.0, -18.8, -1.0)


def guess_question(row: int) -> str:
    """The question that guesses a city."""
    return f"Is your city {cities()[row].names[0]}?"


@lru_cache(maxsize=1024)
def _best_question(candidates: frozenset[int], is_last: bool) -> str:
    """The question with the greatest information gain, or a guess where few cities are left.

    Ties go to the first topic.
    """
    if is_last or len(candidates) <= 2:
        return guess_question(min(candidates))

    def remaining_entropy(question: str) -> float:
        counts = np.array(
            list(Counter(answer_content(row, question) for row in candidates).values())
        )
        # The conditional entropy, times the number of cities.
        return round(float(np.sum(counts * np.log(counts))), 9)

    best = min(QUESTIONS, key=remaining_entropy)
    return (
        best
        if remaining_entropy(best) < round(len(candidates) * float(np.log(len(candidates))), 9)
        else guess_question(min(candidates))
    )


def _random_action(env: Environment, rng: np.random.Generator) -> str:
    """A uniform question: one per topic and one per city."""
    index = int(rng.integers(len(QUESTIONS) + len(cities())))
    return QUESTIONS[index] if index < len(QUESTIONS) else guess_question(index - len(QUESTIONS))


def _expert_action(env: "GuessCity", rng: np.random.Generator) -> str:
    """Greedy information gain over the table, then a guess."""
    return _best_question(env.possible_rows(), len(env.question_answers) == HORIZON - 1)


# Stands for LMRL-Gym's data policies, which are language models. Uniform questions alone have the
# mean return of LMRL-Gym's dataset, -18.8; this policy's is higher.
DATA_POLICY = MixturePolicy(_expert_action, _random_action, 0.03)


class GuessCity(GuessingGame):
    """Find a city by at most 20 open questions, which an oracle answers in a sentence or two.

    The history reads "Questions:\\n", "What language do people speak there?\\n", "People speak
    French.\\n", ... . A question with the city's name as whole words earns 0 and ends the episode,
    whatever the answer; any other text earns -1. The twentieth terminates the episode. No answer
    names the city or its country.

    Scripted policies: `random` (uniform questions), `expert` (greedy information gain) and
    `mixture` (the expert with probability 0.03). Reset option: `target`, the city.

    Args:
        oracle: "scripted", or the endpoint of a language model as plain data, {"url": ..., "model":
            ...}.
        character_comparison: LMRL-Gym's own test of a guess, which compares letters with words, so
            that no guess ever succeeds.

    Raises:
        UserError: an option is unknown.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "mixture": DATA_POLICY, "expert": _expert_action}
    )

    def __init__(
        self,
        oracle: str | Mapping[str, Any] = "scripted",
        character_comparison: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.oracle = (
            ScriptedOracle() if oracle == "scripted" else make_llm_oracle(make_endpoint(oracle))
        )
        self.character_comparison = character_comparison
        self.score_anchors = None if character_comparison else ANCHORS
        self.rules = (
            f"Find the secret city, one of {len(cities())} all over the world, in {HORIZON} "
            "questions.\n"
            "Ask in your own words, such as: What language do people speak there? Is it by the "
            "sea? What is it known for?\n"
            "You win with a question that names the city, such as: Is your city Tokyo? Its name "
            "and its country are never told."
        )
        self._target_row = 0

    @property
    def target(self) -> str:
        """The city to find, as LMRL-Gym would list it: "paris,france"."""
        return cities()[self._target_row].listed_name

    def possible_rows(self) -> frozenset[int]:
        """The cities for which the scripted oracle would have given the same answers so far."""
        rows = frozenset(range(len(cities())))
        for question, _ in self.question_answers:
            target_content = answer_content(self._target_row, question)
            rows = frozenset(row for row in rows if answer_content(row, question) == target_content)
        return rows

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"target"}:
            raise UserError(f"GuessCity has no reset option {sorted(unknown)}; it has: target")
        row, wording_seed = (
            int(number) for number in self.np_random.integers([len(cities()), 2**31])
        )
        if "target" in options:
            named = (
                row_by_name().get(options["target"].lower())
                if isinstance(options["target"], str)
                else None
            )
            if named is None:
                raise UserError(
                    f"target must be one of the {len(cities())} cities, not {options['target']!r}"
                )
            row = named
        self._target_row = row
        if isinstance(self.oracle, ScriptedOracle):
            self.oracle = dataclasses.replace(self.oracle, wording_seed=wording_seed)
        return self._open_episode()

    def _is_correct_guess(self, question: str, answer: str) -> bool:
        return not self.character_comparison and mentions_name(
            question, cities()[self._target_row].names
        )
