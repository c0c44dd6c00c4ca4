"""`TwentyQuestions`: find an object by yes/no questions (LMRL-Gym, arXiv 2311.18232).

The subset of ten objects is ArCHer's (arXiv 2402.19446).
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.lmrl.guessing_game import HORIZON, GuessingGame
from agentrl_jax.envs.lmrl.oracles import Oracle, make_endpoint
from agentrl_jax.envs.lmrl.twenty_questions.knowledge import (
    all_items,
    attribute_matrix,
    attributes,
    guess_question,
    row_by_name,
)
from agentrl_jax.envs.lmrl.twenty_questions.llm_oracle import make_llm_oracle
from agentrl_jax.envs.lmrl.twenty_questions.scripted import ScriptedOracle, true_rows
from agentrl_jax.envs.lmrl.twenty_questions.success import is_done, last_word_matches
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError

ARCHER_SUBSET = (
    "football",
    "dog",
    "banana",
    "truck",
    "pants",
    "computer",
    "piano",
    "chair",
    "pen",
    "scissors",
)
# Words that the scripted oracle reads over, before a question.
PREFACES = (
    "Well then, I am just thinking that perhaps you could really mean this:",
    "Okay, so maybe I will just guess that you might think about this object:",
    "Then perhaps I may really just think about something that it could be:",
)
# The worst return, the mean of LMRL-Gym's dataset, and the expert's mean over all objects.
ANCHORS = (-20.0, -17.3, -7.158)


@cache
def playable_rows(word_set: str) -> tuple[int, ...]:
    """The rows of the table that are played.

    Raises:
        UserError: the set of words is unknown.
    """
    if word_set == "all":
        return tuple(range(len(all_items())))
    if word_set == "subset":
        return tuple(row for name in ARCHER_SUBSET if (row := row_by_name(name)) is not None)
    known, names = {item.category for item in all_items()}, set(word_set.split("+"))
    if names - known:
        raise UserError(
            f"words must be all, subset, or categories joined by + (of {', '.join(sorted(known))}),"
            f" not {word_set!r}"
        )
    return tuple(row for row, item in enumerate(all_items()) if item.category in names)


@lru_cache(maxsize=8192)
def _best_question(candidates: frozenset[int], is_last: bool) -> str:
    """The attribute that splits the objects most evenly, or a guess where few are left.

    Ties go to the first attribute in the table.
    """
    rows = sorted(candidates)
    if is_last or len(rows) <= 2:
        return guess_question(all_items()[rows[0]])
    yes = attribute_matrix()[rows].sum(axis=0)
    index = int(np.argmax(np.minimum(yes, len(rows) - yes)))
    return (
        attributes()[index].question
        if 0 < yes[index] < len(rows)
        else guess_question(all_items()[rows[0]])
    )


def _random_action(env: "TwentyQuestions", rng: np.random.Generator) -> str:
    """A uniform question: one per attribute and one per object."""
    index = int(rng.integers(len(attributes()) + len(env.playable_rows)))
    return (
        attributes()[index].question
        if index < len(attributes())
        else guess_question(all_items()[env.playable_rows[index - len(attributes())]])
    )


def _expert_action(env: "TwentyQuestions", rng: np.random.Generator) -> str:
    """Greedy information gain over the table, then a guess."""
    return _best_question(env.possible_rows(), len(env.question_answers) == HORIZON - 1)


# Stands for LMRL-Gym's data policies, which are language models. Its mean return is about that of
# LMRL-Gym's dataset, -17.3.
DATA_POLICY = MixturePolicy(_expert_action, _random_action, 0.33)
HALF_EXPERT_POLICY = MixturePolicy(_expert_action, _random_action, 0.5)


def with_preface(preface: str, question: str) -> str:
    """A question as the end of a sentence."""
    return f"{preface} {question[:1].lower()}{question[1:]}"


def _talkative_action(env: "TwentyQuestions", rng: np.random.Generator) -> str:
    """The data policy, with a preface to each question."""
    question = DATA_POLICY(env, rng)
    assert isinstance(question, str)
    return with_preface(PREFACES[int(rng.integers(len(PREFACES)))], question)


class TwentyQuestions(GuessingGame):
    """Find an object by at most 20 questions, which an oracle answers "Yes." or "No.".

    The history reads "Questions:\\n", "Is it a dog?\\n", "Yes.\\n", ... . A guess (`is_done`) that
    is answered "Yes." earns 0 and ends the episode; any other text counts as a question and earns
    -1. The twentieth terminates the episode.

    Scripted policies: `random` (uniform questions), `expert` (greedy information gain), `mixture`
    and `half` (the expert with probability 0.33 and 0.5), `talkative` (`mixture` in long sentences:
    "Well then, I am just thinking that perhaps you could really mean this: is it a dog?"). Reset
    option: `target`, the object.

    Args:
        words: "all" (the table), "subset" (ArCHer's ten objects), or categories of the table, as
            "animals+fruits".
        oracle: "scripted", or the endpoint of a language model as plain data, {"url": ..., "model":
            ..., "form": "lmrl" | "archer"}.
        last_word_only: ArCHer's test of a guess, which objects of two words never pass.

    Raises:
        UserError: an option is unknown.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": DATA_POLICY,
            "half": HALF_EXPERT_POLICY,
            "talkative": _talkative_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        words: str = "all",
        oracle: str | Mapping[str, Any] = "scripted",
        last_word_only: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.playable_rows = playable_rows(words)
        self.oracle = _make_oracle(oracle)
        self.last_word_only = last_word_only
        self.score_anchors = ANCHORS if words == "all" and not last_word_only else None
        self.rules = (
            f"Find the secret object, one of {len(self.playable_rows)} everyday things, in "
            f"{HORIZON} questions that are answered by yes or no.\n"
            "Ask in your own words, such as: Is it an animal? Does it have wheels? Is it bigger "
            "than a chair? What is not understood is\n"
            'answered "No.". To win, guess the object by a question that ends with its name, such '
            "as: Is it a bicycle?"
        )
        self._target_row = self.playable_rows[0]

    @property
    def target(self) -> str:
        """The object to find, as LMRL-Gym would list it: "Airplane;Plane"."""
        return all_items()[self._target_row].listed_name

    def possible_rows(self) -> frozenset[int]:
        """The rows consistent with the scripted oracle's answers; all rows where there is none."""
        rows = frozenset(self.playable_rows)
        for question, answer in self.question_answers:
            rows = rows & true_rows(question) if answer == "Yes." else rows - true_rows(question)
        return rows or frozenset(self.playable_rows)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"target"}:
            raise UserError(
                f"TwentyQuestions has no reset option {sorted(unknown)}; it has: target"
            )
        if "target" in options:
            row = row_by_name(options["target"]) if isinstance(options["target"], str) else None
            if row not in self.playable_rows:
                raise UserError(
                    f"target must be one of the {len(self.playable_rows)} objects, not "
                    f"{options['target']!r}"
                )
            self._target_row = row
        else:
            self._target_row = self.playable_rows[
                int(self.np_random.integers(len(self.playable_rows)))
            ]
        return self._open_episode()

    def _is_correct_guess(self, question: str, answer: str) -> bool:
        guessed = last_word_matches if self.last_word_only else is_done
        return answer == "Yes." and guessed(all_items()[self._target_row].names, question)


def _make_oracle(choice: str | Mapping[str, Any]) -> Oracle:
    if choice == "scripted":
        return ScriptedOracle()
    if not isinstance(choice, Mapping):
        return make_llm_oracle(make_endpoint(choice))
    options = {"max_tokens": 4, **choice}
    return make_llm_oracle(
        make_endpoint({name: value for name, value in options.items() if name != "form"}),
        options.get("form", "lmrl"),
    )
