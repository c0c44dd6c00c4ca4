"""`Arithmetic`: a sum with several attempts (UFO, arXiv 2507.14295; SCoRe, arXiv 2409.12917)."""

import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_bool, checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message

OPERATORS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {"+": operator.add, "-": operator.sub, "*": operator.mul}
)
WRONG_ANSWER_FEEDBACK = "Incorrect. Please think again."
NEUTRAL_FEEDBACK = "Check it and answer again."
NUMBER_PATTERN = re.compile(r"-?[0-9]{1,9}")


def _random_action(env: "Arithmetic", rng: np.random.Generator) -> str:
    """A uniform number in the range of the possible solutions."""
    return str(rng.integers(env.answer_range[0], env.answer_range[1] + 1))


def _expert_action(env: "Arithmetic", rng: np.random.Generator) -> str:
    return str(env.solution)


def _near_miss_action(env: "Arithmetic", rng: np.random.Generator) -> str:
    """Off by one or by ten."""
    return str(env.solution + (1, -1, 10, -10)[rng.integers(4)])


def _repeated_action(env: "Arithmetic", rng: np.random.Generator) -> str | Message:
    """The mixture's first answer in every turn."""
    return (env.answers[-1] or "0") if env.answers else MIXTURE_POLICY(env, rng)


MIXTURE_POLICY = MixturePolicy(_expert_action, _near_miss_action, 0.6)


class Arithmetic(SampledTaskEnvironment):
    """The observation is "17+25=?", the action a number; a right one earns 1.

    A wrong answer, or a text that is no number, is answered by `feedback` alone. The right answer
    ("Correct.") or the last attempt terminates the episode. With `always`, every attempt is taken
    and rewarded, the feedback does not depend on the answer, and the last attempt decides
    `success`. `info` holds `formatted` and `answer` ("42", or None).

    Scripted policies: `random` is uniform, `expert` is right, `mixture` is the expert with
    probability 0.6 and else off by one or ten, `repeater` repeats the mixture's first answer.

    Args:
        largest: operands are uniform integers in [0, largest].
        operators: the operators to sample from, some of "+-*".
        attempts: turns per episode; 5 by default, 2 with `always`.
        feedback: the answer to a wrong attempt; None is a default sentence.
        always: whether every attempt is taken and rewarded.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MIXTURE_POLICY,
            "repeater": _repeated_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        largest: int = 20,
        operators: str = "+-",
        attempts: int | None = None,
        feedback: str | None = None,
        always: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.largest = checked_int("largest", largest, 1, 9999)
        if not operators or set(operators) - OPERATORS.keys():
            raise UserError(f"operators must be some of {' '.join(OPERATORS)}, not {operators!r}")
        if not isinstance(feedback, str | None):
            raise UserError(f"feedback must be a text, not {feedback!r}")
        self.operators, self.always = operators, checked_bool("always", always)
        self.attempts = self.horizon = checked_int(
            "attempts", (2 if always else 5) if attempts is None else attempts, 1, 100
        )
        self.feedback = (
            (NEUTRAL_FEEDBACK if always else WRONG_ANSWER_FEEDBACK)
            if feedback is None
            else feedback
        )
        self.full_score = float(self.attempts) if always else 1.0
        corners = [
            OPERATORS[sign](a, b) for sign in operators for a in (0, largest) for b in (0, largest)
        ]
        self.answer_range = min(corners), max(corners)
        ends = "All of them count." if always else "The right answer ends the game."
        self.rules = (
            f"Write the number that the sum comes to. You have {self.attempts} attempts. {ends}"
        )
        self.problem = (0, "+", 0)
        self.answers: tuple[str | None, ...] = ()

    @property
    def solution(self) -> int:
        left, sign, right = self.problem
        return OPERATORS[sign](left, right)

    def _sample_task(self) -> None:
        left, right = (int(self.np_random.integers(self.largest + 1)) for _ in range(2))
        self.problem = left, self.operators[self.np_random.integers(len(self.operators))], right

    def _reset_state(self) -> None:
        self.answers = ()

    def _opening_text(self) -> str:
        return "".join(map(str, self.problem)) + "=?"

    def _respond(self, text: str) -> StepResult:
        answer = str(int(text)) if NUMBER_PATTERN.fullmatch(text) else None
        self.answers = (*self.answers, answer)
        correct = answer == str(self.solution)
        last = self.turns == self.attempts
        over = last or (correct and not self.always)
        feedback = (
            self.feedback
            if not over or not (correct or self.always)
            else "Done."
            if self.always
            else "Correct."
        )
        info = {"formatted": answer is not None, "answer": answer}
        return StepResult(feedback, {"outcome": float(correct)}, info, correct if over else None)
