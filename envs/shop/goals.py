"""`goals`: the shopping instructions of a catalogue."""

from functools import lru_cache
from types import MappingProxyType

import numpy as np

from agentrl_jax.envs.shop.catalogue import Product, catalogue
from agentrl_jax.envs.shop.matching import ShoppingGoal

SHUFFLE_SEED = 233  # as in WebShop
GOALS_PER_PRODUCT = 2
INSTRUCTION_TEMPLATES = (
    "i am looking for {kinds}, {attributes}",
    "find me {kinds}: {attributes}",
    "i want {kinds} like this: {attributes}",
)


def _sample_goal(rng: np.random.Generator, product: Product) -> ShoppingGoal:
    count = int(rng.integers(1, 4))
    attributes = tuple(rng.permutation(product.attributes).tolist()[:count])
    options = {name: values[rng.integers(len(values))] for name, values in product.options.items()}
    # The limit is the larger of two distinct multiples of ten among the four above the price.
    tens = np.sort(rng.choice(np.arange(1, 5), 2, replace=False))[1]
    max_price = 10.0 * (product.price // 10 + tens)
    request = INSTRUCTION_TEMPLATES[rng.integers(len(INSTRUCTION_TEMPLATES))].format(
        kinds=product.query, attributes=" and ".join(attributes)
    )
    option_text = " and ".join(f"{name}: {value}" for name, value in options.items())
    text = f"{request}, with {option_text}, and price lower than {max_price:.2f} dollars"
    return ShoppingGoal(product, attributes, MappingProxyType(options), float(max_price), text)


@lru_cache(maxsize=4)
def goals(seed: int, count: int) -> tuple[ShoppingGoal, ...]:
    """All goals of a catalogue, two per product, in a fixed shuffled order."""
    rng = np.random.default_rng([SHUFFLE_SEED, seed])
    unshuffled = [
        _sample_goal(rng, product)
        for product in catalogue(seed, count)
        for _ in range(GOALS_PER_PRODUCT)
    ]
    return tuple(unshuffled[i] for i in rng.permutation(len(unshuffled)))
