"""`Chain`: a long sequence of right choices with one reward at its end."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_bool, checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message

LETTERS = "abcdefghij"


def _random_action(env: "Chain", rng: np.random.Generator) -> str:
    """A uniform letter."""
    return env.answer(env.letters[rng.integers(len(env.letters))])


def _expert_action(env: "Chain", rng: np.random.Generator) -> str:
    return env.answer(env.correct_letter)


def _plan_following_action(env: "Chain", rng: np.random.Generator) -> str | Message:
    """Plans an action of the weak policy and mostly takes it; without a plan, the weak policy."""
    return PLAN_FOLLOWING_POLICY(env, rng) if env.pending_plan else WEAK_POLICY(env, rng)


def _planned_action(env: "Chain", rng: np.random.Generator) -> str:
    assert env.pending_plan
    return env.pending_plan


WEAK_POLICY = MixturePolicy(_expert_action, _random_action, 0.4)
PLAN_FOLLOWING_POLICY = MixturePolicy(_planned_action, _random_action, 0.9)


class Chain(SampledTaskEnvironment):
    """A chain of `length` states; the observation "3:7" is a position and a digit.

    The right letter advances the chain: number (digit mod `letters`) of a, b, c, ... . The right
    letter of the last state ends the episode with reward 1; every other turn earns 0. A text that
    is not one of the letters changes nothing and costs a turn. `info` holds `legal`, `anchor` (the
    state) and `distance` (right letters still needed).

    Scripted policies: `random` is uniform, `expert` is right, `weak` and `mixture` are the expert
    with probability 0.4 and 0.8, `follower` plans with the weak policy and follows its plan with
    0.9.

    Args:
        length: states of the chain.
        letters: how many letters may be written, 2 to 10.
        wrong: the effect of a wrong letter: "stay", "end" (of the episode), or states to fall back.
        horizon: turns before truncation; twice the length by default, four times with `plans`.
        progress: adds a reward component of that name, the fraction of the chain gained or lost.
        plans: every other text, from the first on, is a plan: it is answered by an empty line and
            changes nothing.
        recall: this many last states show no digit but an early position, as "9=1": the letter of
            position 1 (then 2, 3, ...) is right again.
        answer_length: characters of an answer, which is its letter as often ("bbb").
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "weak": WEAK_POLICY,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "follower": _plan_following_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        length: int = 12,
        letters: int = 4,
        wrong: str | int = "stay",
        horizon: int | None = None,
        progress: bool = False,
        plans: bool = False,
        recall: int = 0,
        answer_length: int = 1,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.length = checked_int("length", length, 1, 1000)
        self.letters = LETTERS[: checked_int("letters", letters, 2, len(LETTERS))]
        if wrong not in ("stay", "end") and not (type(wrong) is int and wrong >= 1):
            raise UserError(
                f"wrong must be 'stay', 'end' or how many states to fall back, not {wrong!r}"
            )
        self.wrong = wrong
        self.progress, self.plans = checked_bool("progress", progress), checked_bool("plans", plans)
        self.horizon = checked_int(
            "horizon", 2 * length * (1 + plans) if horizon is None else horizon, 1, 10_000
        )
        self.recall = checked_int("recall", recall, 0, (length - 1) // 2)
        self.answer_length = checked_int("answer_length", answer_length, 1, 1000)
        if progress:
            self.full_score, self.reward_bounds = 2.0, (-1.0, 2.0)
        self.rules = (
            f"Come to the end of a chain of {length} places. You see the place and a digit, as "
            "3:7.\n"
            f"Write one of the letters {self.letters}: the one whose number, counted from 0, is "
            f"the digit mod {letters}."
        )
        if self.answer_length > 1:
            self.rules += f"\nWrite the letter {self.answer_length} times, without spaces."
        if recall:
            self.rules += "\nAt the end you see 9=1: write the letter of place 1 again."
        self.digits: tuple[int, ...] = (0,) * length
        self.position = 0
        self.pending_plan = ""  # the last plan, until the turn after it

    def answer(self, letter: str) -> str:
        """The text that writes a letter."""
        return letter * self.answer_length

    @property
    def correct_letter(self) -> str:
        position = self.position if self.recall_position is None else self.recall_position
        return self.letters[self.digits[position] % len(self.letters)]

    @property
    def recall_position(self) -> int | None:
        """The early position that the state refers to, or None."""
        number = self.position - (self.length - self.recall)
        return 1 + number if 0 <= number < self.recall else None

    def _sample_task(self) -> None:
        self.digits = tuple(map(int, self.np_random.integers(10, size=self.length)))

    def _reset_state(self) -> None:
        self.position, self.pending_plan = 0, ""

    def _opening_text(self) -> str:
        if self.position == self.length:
            return "end"
        return (
            f"{self.position}:{self.digits[self.position]}"
            if self.recall_position is None
            else f"{self.position}={self.recall_position}"
        )

    def _respond(self, text: str) -> StepResult:
        before, legal = self.position, text in map(self.answer, self.letters)
        info = {"legal": legal, "anchor": f"{''.join(map(str, self.digits))}@{before}"}
        if self.plans and self.turns % 2:
            self.pending_plan = text
            nothing = {"outcome": 0.0, **({"progress": 0.0} if self.progress else {})}
            return StepResult("", nothing, {**info, "distance": self.length - before})
        self.pending_plan = ""
        correct = legal and text == self.answer(self.correct_letter)
        if correct:
            self.position += 1
        elif legal and isinstance(self.wrong, int):
            self.position = max(0, self.position - self.wrong)
        won = self.position == self.length
        lost = legal and not correct and self.wrong == "end"
        rewards = {"outcome": float(won)}
        if self.progress:
            rewards["progress"] = (self.position - before) / self.length
        return StepResult(
            self._opening_text(),
            rewards,
            {**info, "distance": self.length - self.position},
            won if won or lost else None,
        )
