"""`Calculator`: a sum of several numbers and a tool that adds two (SimpleTIR, arXiv 2509.02479)."""

import re
from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, ScriptedPolicy
from agentrl_jax.envs.options import checked_bool, checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy

CALL_PATTERN = re.compile(r"calc ([0-9]{1,9})\+([0-9]{1,9})")
ANSWER_PATTERN = re.compile(r"answer ([0-9]{1,9})")
VOID_ACTION = "hm"


def _random_action(env: "Calculator", rng: np.random.Generator) -> str:
    """Adds two of the numbers, or answers with a uniform one in the range of possible sums."""
    first, second = rng.choice(env.numbers, size=2)
    return (
        f"calc {first}+{second}"
        if rng.random() < 0.5
        else f"answer {rng.integers(env.largest * len(env.numbers) + 1)}"
    )


def _expert_action(env: "Calculator", rng: np.random.Generator) -> str:
    """Adds the numbers from left to right, skipping additions already made, then answers."""
    so_far = list(accumulate(env.numbers))
    for before, number in zip(so_far, env.numbers[1:]):
        if (before, number) not in env.completed_calls:
            return f"calc {before}+{number}"
    return f"answer {so_far[-1]}"


def _void_action(env: Environment, rng: np.random.Generator) -> str:
    return VOID_ACTION


# Most turns are right, some are void, and some answers are guesses.
MIXTURE_POLICY = MixturePolicy(
    MixturePolicy(_expert_action, _random_action, 0.85), _void_action, 0.8
)


class Calculator(SampledTaskEnvironment):
    """The observation is "3+14+8=?"; "calc 3+14" is answered by "17", "answer 25" ends the episode.

    The reward is 1 for the right answer, else 0. The tool adds two numbers at a time. Any other
    text is a void turn, answered by "?". `info` holds `void`, `formatted` (not void),
    `called_tools`, `stopped` (whether the agent answered) and `answer` ("25", or None).

    Scripted policies: `random` adds or answers at random, `expert` adds from left to right,
    `mixture` is mostly the expert, with random and void turns.

    Args:
        terms: how many numbers are summed.
        largest: numbers are uniform integers in [0, largest].
        longest: characters of a tool result that are returned.
        void_ends: whether a void turn ends the episode, without success.
        horizon: turns before truncation.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "mixture": MIXTURE_POLICY, "expert": _expert_action}
    )

    def __init__(
        self,
        terms: int = 3,
        largest: int = 20,
        longest: int = 8,
        void_ends: bool = False,
        horizon: int = 8,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.numbers = (0,) * checked_int("terms", terms, 2, 50)
        self.largest, self.longest = (
            checked_int("largest", largest, 1, 9999),
            checked_int("longest", longest, 1, 512),
        )
        self.void_ends = checked_bool("void_ends", void_ends)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.rules = (
            f"Find the sum in at most {horizon} turns. calc 3+14 adds two numbers; answer 25 ends "
            "the game; write nothing else."
        )
        self.completed_calls: frozenset[tuple[int, int]] = frozenset()

    def _sample_task(self) -> None:
        self.numbers = tuple(
            map(int, self.np_random.integers(self.largest + 1, size=len(self.numbers)))
        )

    def _reset_state(self) -> None:
        self.completed_calls = frozenset()

    def _opening_text(self) -> str:
        return "+".join(map(str, self.numbers)) + "=?"

    def _respond(self, text: str) -> StepResult:
        tool_call, final = CALL_PATTERN.fullmatch(text), ANSWER_PATTERN.fullmatch(text)
        void = not tool_call and not final
        info = {
            "void": void,
            "formatted": not void,
            "called_tools": ["calc"] if tool_call else [],
            "stopped": final is not None,
            "answer": str(int(final[1])) if final else None,
        }
        if final:
            correct = int(final[1]) == sum(self.numbers)
            return StepResult("Done.", {"outcome": float(correct)}, info, correct)
        answer = "?"
        if tool_call:
            first, second = int(tool_call[1]), int(tool_call[2])
            self.completed_calls |= {(first, second)}
            answer = str(first + second)[: self.longest]
        return StepResult(
            answer, {"outcome": 0.0}, info, False if void and self.void_ends else None
        )
