"""`Calculator`: a sum of several numbers and a tool that adds two (SimpleTIR, arXiv 2509.02479)."""

import re
from collections.abc import Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import Probe, Reply, flag, whole

CALL = re.compile(r"calc ([0-9]{1,9})\+([0-9]{1,9})")
ANSWER = re.compile(r"answer ([0-9]{1,9})")
VOID = "hm"


def _random(env: Environment, rng: np.random.Generator) -> str:
    """Adds two of the numbers, or answers a uniform one that is not too large."""
    assert isinstance(env, Calculator)
    first, second = rng.choice(env.numbers, size=2)
    return f"calc {first}+{second}" if rng.random() < 0.5 else f"answer {rng.integers(env.largest * len(env.numbers) + 1)}"


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Adds number by number, then answers; where some of it is done, the rest."""
    assert isinstance(env, Calculator)
    so_far = list(accumulate(env.numbers))
    for before, number in zip(so_far, env.numbers[1:]):
        if (before, number) not in env.called:
            return f"calc {before}+{number}"
    return f"answer {so_far[-1]}"


def _void(env: Environment, rng: np.random.Generator) -> str:
    return VOID


# Most of what it does is right, some turns are void, and some answers are guesses.
MIXTURE = Mixed(Mixed(_expert, _random, 0.85), _void, 0.8)


class Calculator(Probe):
    """ "3+14+8=?": "calc 3+14" is answered by "17", "answer 25" ends the episode with reward 1 where it is right, else 0.

    The tool adds two numbers at a time; its result is cut to its first `longest` characters. Any other text is a void turn: it is
    answered by "?", or with `void_ends` it ends the episode. The sum has `terms` numbers from 0 to `largest`.

    `info` says `void`, `formatted` (it was not void), `tool_calls`, `stopped` (it was answered) and `answer` ("25", or None).
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"random": _random, "mixture": MIXTURE, "expert": _expert})

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
        self.numbers = (0,) * whole("terms", terms, 2, 50)
        self.largest, self.longest = whole("largest", largest, 1, 9999), whole("longest", longest, 1, 512)
        self.void_ends = flag("void_ends", void_ends)
        self.horizon = whole("horizon", horizon, 1, 1000)
        self.rules = f"Find the sum in at most {horizon} turns. calc 3+14 adds two numbers; answer 25 ends the game; write nothing else."
        self.called: frozenset[tuple[int, int]] = frozenset()

    def _draw(self) -> None:
        self.numbers = tuple(map(int, self.np_random.integers(self.largest + 1, size=len(self.numbers))))

    def _begin(self) -> None:
        self.called = frozenset()

    def _question(self) -> str:
        return "+".join(map(str, self.numbers)) + "=?"

    def _reply(self, text: str) -> Reply:
        call, answered = CALL.fullmatch(text), ANSWER.fullmatch(text)
        void = not call and not answered
        facts = {
            "void": void,
            "formatted": not void,
            "tool_calls": int(call is not None),
            "stopped": answered is not None,
            "answer": str(int(answered[1])) if answered else None,
        }
        if answered:
            right = int(answered[1]) == sum(self.numbers)
            return Reply("Done.", {"outcome": float(right)}, facts, right)
        said = "?"
        if call:
            first, second = int(call[1]), int(call[2])
            self.called |= {(first, second)}
            said = str(first + second)[: self.longest]
        return Reply(said, {"outcome": 0.0}, facts, False if void and self.void_ends else None)
