"""`Chain`: many right choices in a row, and one reward at the end."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import Probe, Reply, flag, whole
from agentrl_jax.errors import UserError

LETTERS = "abcdefghij"


def _random(env: Environment, rng: np.random.Generator) -> str:
    """A uniform letter."""
    assert isinstance(env, Chain)
    return env.letters[rng.integers(len(env.letters))]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    assert isinstance(env, Chain)
    return env.right_letter


def _follower(env: Environment, rng: np.random.Generator) -> str:
    """Plans as the weak player would go, and mostly does what was planned; without a plan, the weak player."""
    assert isinstance(env, Chain)
    return FOLLOWS(env, rng) if env.plan else WEAK(env, rng)


def _planned(env: Environment, rng: np.random.Generator) -> str:
    assert isinstance(env, Chain) and env.plan
    return env.plan


WEAK = Mixed(_expert, _random, 0.4)
FOLLOWS = Mixed(_planned, _random, 0.9)


class Chain(Probe):
    """A chain of `length` states, of which each shows its place and a digit, as "3:7"; the right one of `letters` letters goes on.

    The rule: a digit's letter is number digit mod `letters` of a, b, c, ... A wrong letter leads nowhere (`wrong` "stay"), so many
    states back (a number) or ends the episode ("end"). The last state's right letter ends it with reward 1; all else earns 0. With
    `progress` a part of that name pays the share of the chain that each turn gained or lost. The horizon is twice the length
    unless given. Text that is no letter of the world is refused and costs a turn. With `plans` each text is planned first: every other
    one, from the first on, is a plan, which is answered by an empty line and changes nothing (the horizon is then twice as long).
    With `recall` so many last states show no digit of their own but name an early place, as "9=1": the digit of place 1 (then 2,
    3, ...) is asked for again.

    `info` says `legal`, `anchor` and `distance` (right letters still needed).
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "weak": WEAK, "mixture": Mixed(_expert, _random, 0.8), "follower": _follower, "expert": _expert}
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
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.length = whole("length", length, 1, 1000)
        self.letters = LETTERS[: whole("letters", letters, 2, len(LETTERS))]
        if wrong not in ("stay", "end") and not (type(wrong) is int and wrong >= 1):
            raise UserError(f"wrong must be 'stay', 'end' or how many states to fall back, not {wrong!r}")
        self.wrong = wrong
        self.progress, self.plans = flag("progress", progress), flag("plans", plans)
        self.horizon = whole("horizon", 2 * length * (1 + plans) if horizon is None else horizon, 1, 10_000)
        self.recall = whole("recall", recall, 0, (length - 1) // 2)
        if progress:
            self.full_score, self.reward_bounds = 2.0, (-1.0, 2.0)
        self.rules = (
            f"Come to the end of a chain of {length} places. You see the place and a digit, as 3:7.\n"
            f"Write one of the letters {self.letters}: the one whose number, counted from 0, is the digit mod {letters}."
        )
        if recall:
            self.rules += "\nAt the end you see 9=1: write the letter of place 1 again."
        self.digits: tuple[int, ...] = (0,) * length
        self.place = 0
        self.plan = ""  # that was written and is not acted on yet

    @property
    def right_letter(self) -> str:
        place = self.place if self.recalled is None else self.recalled
        return self.letters[self.digits[place] % len(self.letters)]

    @property
    def recalled(self) -> int | None:
        """The early place that the state asks for, if it does."""
        number = self.place - (self.length - self.recall)
        return 1 + number if 0 <= number < self.recall else None

    def _draw(self) -> None:
        self.digits = tuple(map(int, self.np_random.integers(10, size=self.length)))

    def _begin(self) -> None:
        self.place, self.plan = 0, ""

    def _question(self) -> str:
        if self.place == self.length:
            return "end"
        return f"{self.place}:{self.digits[self.place]}" if self.recalled is None else f"{self.place}={self.recalled}"

    def _reply(self, text: str) -> Reply:
        before, legal = self.place, len(text) == 1 and text in self.letters
        facts = {"legal": legal, "anchor": f"{''.join(map(str, self.digits))}@{before}"}
        if self.plans and self.turns % 2:
            self.plan = text
            nothing = {"outcome": 0.0, **({"progress": 0.0} if self.progress else {})}
            return Reply("", nothing, {**facts, "distance": self.length - before})
        self.plan = ""
        right = legal and text == self.right_letter
        if right:
            self.place += 1
        elif legal and isinstance(self.wrong, int):
            self.place = max(0, self.place - self.wrong)
        won = self.place == self.length
        lost = legal and not right and self.wrong == "end"
        rewards = {"outcome": float(won)}
        if self.progress:
            rewards["progress"] = (self.place - before) / self.length
        return Reply(self._question(), rewards, {**facts, "distance": self.length - self.place}, won if won or lost else None)
