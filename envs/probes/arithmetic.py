"""`Arithmetic`: a sum, and several attempts at it (UFO, arXiv 2507.14295; SCoRe, arXiv 2409.12917)."""

import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import Probe, Reply, flag, whole
from agentrl_jax.errors import UserError

OPERATORS: Mapping[str, Callable[[int, int], int]] = MappingProxyType({"+": operator.add, "-": operator.sub, "*": operator.mul})
FEEDBACK = "Incorrect. Please think again."
UNREVEALING = "Check it and answer again."
NUMBER = re.compile(r"-?[0-9]{1,9}")


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform number among those that an answer may be."""
    assert isinstance(env, Arithmetic)
    return str(rng.integers(env.answer_range[0], env.answer_range[1] + 1))


def _expert(env: Environment, rng: np.random.Generator) -> str:
    assert isinstance(env, Arithmetic)
    return str(env.solution)


def _slip(env: Environment, rng: np.random.Generator) -> str:
    """Wrong by one or by ten."""
    assert isinstance(env, Arithmetic)
    return str(env.solution + (1, -1, 10, -10)[rng.integers(4)])


def _repeater(env: Environment, rng: np.random.Generator) -> str:
    """The mixture's first answer, again and again."""
    assert isinstance(env, Arithmetic)
    return (env.answers[-1] or "0") if env.answers else MIXTURE(env, rng)


MIXTURE = Mixed(_expert, _slip, 0.6)


class Arithmetic(Probe):
    """ "17+25=?" is answered by a number; the reward of a turn is 1 where it is right, else 0.

    A wrong answer is answered by `feedback` and nothing else, and so is text that is no number. The episode has terminated with
    the right answer ("Correct.") or after `attempts` (5 by default). With `always` all attempts (2 by default) are played and
    scored whatever they are, the message between them tells nothing, and the last one decides about success.

    Operands are 0 to `largest`, `operators` some of + - *. `info` says `formatted` and `answer` ("42", or None).
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "mixture": MIXTURE, "repeater": _repeater, "expert": _expert}
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
        self.largest = whole("largest", largest, 1, 9999)
        if not operators or set(operators) - OPERATORS.keys():
            raise UserError(f"operators must be some of {' '.join(OPERATORS)}, not {operators!r}")
        if not isinstance(feedback, str | None):
            raise UserError(f"feedback must be a text, not {feedback!r}")
        self.operators, self.always = operators, flag("always", always)
        self.attempts = self.horizon = whole("attempts", (2 if always else 5) if attempts is None else attempts, 1, 100)
        self.feedback = (UNREVEALING if always else FEEDBACK) if feedback is None else feedback
        self.full_score = float(self.attempts) if always else 1.0
        corners = [OPERATORS[sign](a, b) for sign in operators for a in (0, largest) for b in (0, largest)]
        self.answer_range = min(corners), max(corners)
        ends = "All of them count." if always else "The right answer ends the game."
        self.rules = f"Write the number that the sum comes to. You have {self.attempts} attempts. {ends}"
        self.problem = (0, "+", 0)
        self.answers: tuple[str | None, ...] = ()

    @property
    def solution(self) -> int:
        left, sign, right = self.problem
        return OPERATORS[sign](left, right)

    def _draw(self) -> None:
        left, right = (int(self.np_random.integers(self.largest + 1)) for _ in range(2))
        self.problem = left, self.operators[self.np_random.integers(len(self.operators))], right

    def _begin(self) -> None:
        self.answers = ()

    def _question(self) -> str:
        return "".join(map(str, self.problem)) + "=?"

    def _reply(self, text: str) -> Reply:
        answer = str(int(text)) if NUMBER.fullmatch(text) else None
        self.answers = (*self.answers, answer)
        right = answer == str(self.solution)
        last = self.turns == self.attempts
        over = last or (right and not self.always)
        said = self.feedback if not over or not (right or self.always) else "Done." if self.always else "Correct."
        facts = {"formatted": answer is not None, "answer": answer}
        return Reply(said, {"outcome": float(right)}, facts, right if over else None)
