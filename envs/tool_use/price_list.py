"""`PriceList`: what several things cost, with a tool for prices and one for calculations."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import check_no_options, checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.messages import Message, user
from agentrl_jax.tool_environment import ToolEnvironment, tool_action

ITEMS = ("fig", "nut", "pie", "tea", "oil", "rye", "jam", "egg")
EXPRESSION_PATTERN = re.compile(r"[0-9]{1,6}(?:[+*][0-9]{1,6}){0,15}")
ANSWER_PATTERN = re.compile(r"[0-9]{1,9}")


def evaluate(expression: str) -> int:
    """The value of whole numbers with + and * between them; ValueError for anything else."""
    if not EXPRESSION_PATTERN.fullmatch(expression):
        raise ValueError("an expression has whole numbers with + and * between them, no spaces")
    return sum(prod(map(int, term.split("*"))) for term in expression.split("+"))


def _times(count: int, sign: str, unit: int | str) -> str:
    """2 * 3; the unit alone where it is there once."""
    return f"{count}{sign}{unit}" if count > 1 else str(unit)


def _random_action(env: "PriceList", rng: np.random.Generator) -> Message | str:
    """Looks up a uniform item, adds two uniform numbers or answers with one."""
    kind = rng.integers(3)
    if kind == 0:
        return tool_action("look_up", item=ITEMS[rng.integers(env.num_items)])
    numbers = rng.integers(1, env.largest + 1, size=2)
    if kind == 1:
        return tool_action("calculate", expression=f"{numbers[0]}+{numbers[1]}")
    return str(numbers.sum())


def _expert_action(env: "PriceList", rng: np.random.Generator) -> Message | str:
    """Looks up the prices that it has not seen, calculates, and answers."""
    unseen = [item for item in env.basket if item not in env.seen_items]
    if unseen:
        return tool_action("look_up", item=unseen[0])
    if env.expression not in env.expressions:
        return tool_action("calculate", expression=env.expression)
    return str(env.total)


class PriceList(ToolEnvironment, Forkable):
    """The question is "2 fig + nut?": look up both prices, calculate, and answer with the total.

    The prices are drawn anew for each episode. The tool `look_up` tells an item's price,
    `calculate` adds and multiplies; a message without a tool call is the answer and ends the
    episode. The reward is 1 for the right total, else 0.

    Scripted policies: `random`, `expert`, and `mixture`, the expert with probability 0.85.

    Args:
        items: on the list, 2 to 8.
        terms: different items in a question.
        most: of one item in a question.
        largest: prices are uniform integers in [1, largest].
        horizon: turns before truncation.
    """

    reward_bounds = (0.0, 1.0)
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.85),
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        items: int = 6,
        terms: int = 2,
        most: int = 3,
        largest: int = 9,
        horizon: int = 8,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.num_items = checked_int("items", items, 2, len(ITEMS))
        self.num_terms = checked_int("terms", terms, 1, items)
        self.most = checked_int("most", most, 1, 99)
        self.largest = checked_int("largest", largest, 1, 9999)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.rules = (
            f"Find out what the items cost together, in at most {horizon} turns. The tools tell "
            "prices and calculate; a number alone is your answer."
        )
        self.prices: Mapping[str, int] = {}
        self.basket: Mapping[str, int] = {}  # item -> how many of it
        self._rewind()

    @property
    def expression(self) -> str:
        """The calculation that gives the total."""
        return "+".join(
            _times(count, "*", self.prices[item]) for item, count in self.basket.items()
        )

    @property
    def total(self) -> int:
        return sum(count * self.prices[item] for item, count in self.basket.items())

    def _tools(self) -> Sequence[Callable[..., Any]]:
        return self.look_up, self.calculate

    def look_up(self, item: str) -> str:
        """Tell the price of an item.

        Args:
            item: its name
        """
        if item not in self.prices:
            raise ValueError(f"there is no {item} on the list")
        self.seen_items |= {item}
        return str(self.prices[item])

    def calculate(self, expression: str) -> int:
        """Add and multiply whole numbers.

        Args:
            expression: such as 2*3+4
        """
        result = evaluate(expression)
        self.expressions |= {expression}
        return result

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("PriceList", options)
        names = ITEMS[: self.num_items]
        prices = self.np_random.integers(1, self.largest + 1, size=len(names))
        self.prices = dict(zip(names, map(int, prices)))
        chosen = self.np_random.permutation(len(names))[: self.num_terms]
        counts = self.np_random.integers(1, self.most + 1, size=self.num_terms)
        self.basket = {names[i]: int(count) for i, count in zip(chosen, counts)}
        self._rewind()
        question = " + ".join(_times(count, " ", item) for item, count in self.basket.items())
        return (user(f"{question}?"),), {}

    def _rewind(self) -> None:
        self.seen_items: frozenset[str] = frozenset()
        self.expressions: frozenset[str] = frozenset()  # calculated so far

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        answer = ANSWER_PATTERN.fullmatch(text.strip())
        is_right = answer is not None and int(answer[0]) == self.total
        info = {
            "rewards": {"outcome": float(is_right)},
            "success": is_right,
            "formatted": answer is not None,
            "stopped": True,
            "answer": answer[0] if answer else None,
        }
        return (), float(is_right), True, False, info
