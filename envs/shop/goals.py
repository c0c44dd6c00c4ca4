"""`goals`: what customers of a catalogue ask for."""

from functools import lru_cache
from types import MappingProxyType

import numpy as np

from agentrl_jax.envs.shop.catalogue import Product, catalogue
from agentrl_jax.envs.shop.matching import Goal

SHUFFLE = 233  # WebShop's
A_PRODUCT = 2  # goals of each product
ASKED = ("i am looking for {kinds}, {attributes}", "find me {kinds}: {attributes}", "i want {kinds} like this: {attributes}")


def _goal(rng: np.random.Generator, product: Product) -> Goal:
    count = int(rng.integers(1, 4))
    attributes = tuple(rng.permutation(product.attributes).tolist()[:count])
    options = {name: values[rng.integers(len(values))] for name, values in product.options.items()}
    # The limit is the larger of two of the four multiples of ten above the price.
    tens = np.sort(rng.choice(np.arange(1, 5), 2, replace=False))[1]
    most = 10.0 * (product.price // 10 + tens)
    asked = ASKED[rng.integers(len(ASKED))].format(kinds=product.query, attributes=" and ".join(attributes))
    wanted = " and ".join(f"{name}: {value}" for name, value in options.items())
    text = f"{asked}, with {wanted}, and price lower than {most:.2f} dollars"
    return Goal(product, attributes, MappingProxyType(options), float(most), text)


@lru_cache(maxsize=4)
def goals(seed: int, count: int) -> tuple[Goal, ...]:
    """Two for each product of a catalogue, shuffled once and for all."""
    rng = np.random.default_rng([SHUFFLE, seed])
    found = [_goal(rng, product) for product in catalogue(seed, count) for _ in range(A_PRODUCT)]
    return tuple(found[i] for i in rng.permutation(len(found)))
