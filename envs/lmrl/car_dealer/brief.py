"""Who the buyer is: personality, wishes, budget, and the car that they came for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

BRANDS = ("Audi", "BMW", "Chevrolet", "Ford", "Honda", "Hyundai", "Kia", "Mazda", "Nissan", "Subaru", "Tesla", "Toyota", "Volvo")
TYPES = ("convertible", "coupe", "minivan", "sedan", "SUV", "truck")
FEATURES = (
    "all-wheel drive", "backup camera", "bluetooth", "GPS navigation", "heated seats", "leather seats", "parking sensors", "sunroof",
)  # fmt: skip
BUDGETS = (10_000, 30_000, 50_000, 70_000, 90_000)
# The list price as a share of the budget; the seed draws one.
SHARES = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5)


@dataclass(frozen=True)
class Personality:
    """How a buyer bargains. They would pay `worth` of the list price, and `praise` more for each wished-for feature that they are
    told of; they begin at `opening` of their limit, come up to it evenly, and have `patience` turns until they decide."""

    worth: float
    praise: float
    opening: float
    patience: int
    manner: str  # how they begin a sentence


PERSONALITIES: Mapping[str, Personality] = MappingProxyType(
    {
        "agreeable": Personality(0.98, 0.01, 0.85, 4, "That sounds nice."),
        "analytical": Personality(0.90, 0.03, 0.75, 6, "I have compared the numbers."),
        "bargain hunter": Personality(0.82, 0.01, 0.60, 8, "I have seen cheaper ones."),
        "cautious": Personality(0.88, 0.02, 0.70, 7, "I don't want to rush into this."),
        "enthusiastic": Personality(1.00, 0.00, 0.90, 3, "I love it!"),
        "impatient": Personality(0.95, 0.00, 0.85, 2, "Let's be quick."),
        "indecisive": Personality(0.90, 0.02, 0.70, 9, "I am not sure yet."),
        "loyal": Personality(0.96, 0.01, 0.80, 5, "I have always driven one of these."),
        "skeptical": Personality(0.85, 0.03, 0.65, 6, "I find that hard to believe."),
        "thrifty": Personality(0.84, 0.01, 0.70, 6, "Money is tight."),
    }
)


@dataclass(frozen=True)
class Brief:
    """What the buyer knows and the seller does not; `variety` chooses between a scripted buyer's wordings."""

    personality: str
    brand: str
    type: str
    features: tuple[str, ...]
    budget: int
    msrp: int  # the list price of the car that they came for
    variety: int = 0

    @property
    def line(self) -> str:
        """As LMRL-Gym conditions its buyer."""
        return (
            f"Personality: {self.personality}. Prefers {self.brand} {self.type} with {', '.join(self.features)}. Budget: ${self.budget:,}\n"
        )

    def limit(self, told: int) -> int:
        """The most that they would pay, once told of so many of their features: within the budget and the list price."""
        who = PERSONALITIES[self.personality]
        return min(self.budget, int(self.msrp * min(1.0, who.worth + who.praise * told)))

    def counter(self, turn: int, told: int) -> int:
        """What they offer in their turn number `turn`, from 1: the limit from their last turn on, in whole hundreds."""
        who = PERSONALITIES[self.personality]
        share = who.opening + (1 - who.opening) * min(1.0, (turn - 1) / max(1, who.patience - 1))
        return int(self.limit(told) * share) // 100 * 100


def drawn(rng: np.random.Generator) -> Brief:
    """A buyer, all uniform."""
    budget = BUDGETS[int(rng.integers(len(BUDGETS)))]
    features = rng.permutation(len(FEATURES))[: int(rng.integers(1, 5))]
    return Brief(
        personality=tuple(PERSONALITIES)[int(rng.integers(len(PERSONALITIES)))],
        brand=BRANDS[int(rng.integers(len(BRANDS)))],
        type=TYPES[int(rng.integers(len(TYPES)))],
        features=tuple(FEATURES[int(place)] for place in features),
        budget=budget,
        msrp=round(budget * SHARES[int(rng.integers(len(SHARES)))]),
        variety=int(rng.integers(2**31)),
    )
