"""WebShop's reward (arXiv 2207.01206): how well a purchase meets an instruction."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from agentrl_jax.envs.shop.catalogue import Product

MATCH_THRESHOLD = 85  # two texts with a higher ratio match
EXACT_MATCH_OPTIONS = frozenset({"size"})  # options that must be equal


@dataclass(frozen=True)
class ShoppingGoal:
    """A target product and the constraints that the instruction states."""

    product: Product
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    max_price: float  # dollars
    instruction: str


def _common_subsequence_length(first: str, second: str) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for letter in first:
        diagonal = 0
        for column, other_letter in enumerate(second, 1):
            diagonal, row[column] = (
                row[column],
                diagonal + 1 if letter == other_letter else max(row[column], row[column - 1]),
            )
    return row[-1]


def _similarity_ratio(first: str, second: str) -> float:
    return 200 * _common_subsequence_length(first, second) / (len(first) + len(second))


@lru_cache(maxsize=2**14)
def token_set_ratio(first: str, second: str) -> int:
    """Similarity of two texts by their sets of words, 0 to 100.

    It is 100 where one holds all words of the other. With s the shared words and a, b all words of
    each text (s first, both sorted), it is the largest ratio of (a, b), (s, a) and (s, b), where
    ratio(x, y) = 200 |longest common subsequence| / (|x| + |y|).
    """
    words, other_words = (set(re.findall(r"\w+", text.lower())) for text in (first, second))
    if not words or not other_words:
        return 0
    shared = sorted(words & other_words)
    if shared and (words <= other_words or other_words <= words):
        return 100
    s, a, b = (
        " ".join([*shared, *sorted(extra)])
        for extra in ((), words - other_words, other_words - words)
    )
    return round(max(_similarity_ratio(a, b), _similarity_ratio(s, a), _similarity_ratio(s, b)))


def count_matched_attributes(product: Product, goal: ShoppingGoal) -> int:
    """Attributes of the goal that the product has or that its text names."""
    return sum(
        any(
            token_set_ratio(product_attribute, attribute) > MATCH_THRESHOLD
            for product_attribute in product.attributes
        )
        or attribute in product.text
        for attribute in goal.attributes
    )


def count_matched_options(chosen_options: Mapping[str, str], goal: ShoppingGoal) -> int:
    """Chosen options that match an option of the goal."""
    goal_values = tuple(goal.options.values())
    return sum(
        value in goal_values
        if name in EXACT_MATCH_OPTIONS
        else any(token_set_ratio(value, goal_value) > MATCH_THRESHOLD for goal_value in goal_values)
        for name, value in chosen_options.items()
    )


def kind_factor(product: Product, goal: ShoppingGoal) -> float:
    """1 for a product of the right kind, 0.5 or 0.1 for a distant one, 0 with no noun in common."""
    overlap = len(product.nouns & goal.product.nouns) / len(goal.product.nouns)
    near = (
        product.query == goal.product.query
        or len(set(product.category) & set(goal.product.category)) >= 2
        or overlap > 0.2
    )
    if overlap < 0.1:
        return 0.0 if overlap == 0 else 0.1
    return 1.0 if near else 0.5


def purchase_reward(
    product: Product, chosen_options: Mapping[str, str], goal: ShoppingGoal
) -> float:
    """The reward of a purchase, in [0, 1].

    kind x (matched attributes + matched options + [price <= limit]) / (attributes + options + 1)
    """
    matched = (
        count_matched_attributes(product, goal)
        + count_matched_options(chosen_options, goal)
        + (product.price <= goal.max_price)
    )
    return kind_factor(product, goal) * matched / (len(goal.attributes) + len(goal.options) + 1)
