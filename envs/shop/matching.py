"""WebShop's reward (Yao et al., arXiv 2207.01206): how much of what was asked for a purchase is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from agentrl_jax.envs.shop.catalogue import Product

ALIKE = 85  # two texts whose ratio is higher are taken for the same
EXACT = frozenset({"size"})  # options that must be the same to the letter


@dataclass(frozen=True)
class Goal:
    """A product that somebody has in mind, and what of it was asked for."""

    product: Product
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    most: float  # dollars
    instruction: str


def _common(one: str, other: str) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for letter in one:
        before = 0
        for place, against in enumerate(other, 1):
            before, row[place] = row[place], before + 1 if letter == against else max(row[place], row[place - 1])
    return row[-1]


def _ratio(one: str, other: str) -> float:
    return 200 * _common(one, other) / (len(one) + len(other))


@lru_cache(maxsize=2**14)
def token_set_ratio(one: str, other: str) -> int:
    """How alike two texts are, 0 to 100, by their sets of words: 100 where one holds all words of the other.

    With the shared words s and all words of each text a and b, sorted and s first, it is the largest ratio of (a, b), (s, a) and (s, b),
    where ratio(x, y) = 200 |longest common subsequence| / (|x| + |y|).
    """
    words, others = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
    if not words or not others:
        return 0
    shared = sorted(words & others)
    if shared and (words <= others or others <= words):
        return 100
    s, a, b = (" ".join([*shared, *sorted(rest)]) for rest in ((), words - others, others - words))
    return round(max(_ratio(a, b), _ratio(s, a), _ratio(s, b)))


def matched_attributes(bought: Product, goal: Goal) -> int:
    """The attributes asked for that the product has, or that its texts name."""
    return sum(
        any(token_set_ratio(has, wanted) > ALIKE for has in bought.attributes) or wanted in bought.text for wanted in goal.attributes
    )


def matched_options(chosen: Mapping[str, str], goal: Goal) -> int:
    """The chosen options that are alike one asked for."""
    wanted = tuple(goal.options.values())
    return sum(
        value in wanted if name in EXACT else any(token_set_ratio(value, other) > ALIKE for other in wanted)
        for name, value in chosen.items()
    )


def kind_factor(bought: Product, goal: Goal) -> float:
    """1 where what was bought is of the right kind, .5 or .1 where it is hardly, 0 where no noun of the title is shared."""
    overlap = len(bought.nouns & goal.product.nouns) / len(goal.product.nouns)
    near = bought.query == goal.product.query or len(set(bought.category) & set(goal.product.category)) >= 2 or overlap > 0.2
    if overlap < 0.1:
        return 0.0 if overlap == 0 else 0.1
    return 1.0 if near else 0.5


def reward(bought: Product, chosen: Mapping[str, str], goal: Goal) -> float:
    """kind x (matched attributes + matched options + [price at most the limit]) / (attributes + options + 1)."""
    matched = matched_attributes(bought, goal) + matched_options(chosen, goal) + (bought.price <= goal.most)
    return kind_factor(bought, goal) * matched / (len(goal.attributes) + len(goal.options) + 1)
