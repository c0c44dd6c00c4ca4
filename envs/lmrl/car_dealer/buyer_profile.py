"""`BuyerProfile`: personality, wishes and budget of a buyer, and the car they ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

BRANDS = (
    "Audi",
    "BMW",
    "Chevrolet",
    "Ford",
    "Honda",
    "Hyundai",
    "Kia",
    "Mazda",
    "Nissan",
    "Subaru",
    "Tesla",
    "Toyota",
    "Volvo",
)
CAR_TYPES = ("convertible", "coupe", "minivan", "sedan", "SUV", "truck")
FEATURES = (
    "all-wheel drive",
    "backup camera",
    "bluetooth",
    "GPS navigation",
    "heated seats",
    "leather seats",
    "parking sensors",
    "sunroof",
)
BUDGETS = (10_000, 30_000, 50_000, 70_000, 90_000)
# The list price as a fraction of the budget; sampled.
LIST_PRICE_RATIOS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5)


@dataclass(frozen=True)
class Personality:
    """How a buyer bargains.

    Their reservation price is `price_fraction` of the list price, plus `feature_bonus` for each
    wished feature that the seller names. Offers begin at `opening_fraction` of it, rise linearly,
    and reach it in turn `decision_turn`, in which they decide.
    """

    price_fraction: float
    feature_bonus: float
    opening_fraction: float
    decision_turn: int
    catchphrase: str  # begins their first sentence, and every third one


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
class BuyerProfile:
    """What the buyer knows and the seller does not; `wording_seed` selects wordings."""

    personality: str
    brand: str
    type: str
    features: tuple[str, ...]
    budget: int
    msrp: int  # the list price of the car they ask for
    wording_seed: int = 0

    @property
    def prompt_line(self) -> str:
        """The conditions in LMRL-Gym's prompt of its buyer model."""
        return (
            f"Personality: {self.personality}. Prefers {self.brand} {self.type} with "
            f"{', '.join(self.features)}. Budget: ${self.budget:,}\n"
        )

    def reservation_price(self, features_named: int) -> int:
        """The most they would pay, in dollars, once this many of their features were named.

        It is at most the budget and the list price.
        """
        personality = PERSONALITIES[self.personality]
        return min(
            self.budget,
            int(
                self.msrp
                * min(1.0, personality.price_fraction + personality.feature_bonus * features_named)
            ),
        )

    def counter_offer(self, turn: int, features_named: int) -> int:
        """Their offer in turn `turn` (from 1), in whole hundreds of dollars."""
        personality = PERSONALITIES[self.personality]
        fraction = personality.opening_fraction + (1 - personality.opening_fraction) * min(
            1.0, (turn - 1) / max(1, personality.decision_turn - 1)
        )
        return int(self.reservation_price(features_named) * fraction) // 100 * 100


def sample_profile(rng: np.random.Generator) -> BuyerProfile:
    """A uniformly sampled buyer."""
    budget = BUDGETS[int(rng.integers(len(BUDGETS)))]
    features = rng.permutation(len(FEATURES))[: int(rng.integers(1, 5))]
    return BuyerProfile(
        personality=tuple(PERSONALITIES)[int(rng.integers(len(PERSONALITIES)))],
        brand=BRANDS[int(rng.integers(len(BRANDS)))],
        type=CAR_TYPES[int(rng.integers(len(CAR_TYPES)))],
        features=tuple(FEATURES[int(index)] for index in features),
        budget=budget,
        msrp=round(budget * LIST_PRICE_RATIOS[int(rng.integers(len(LIST_PRICE_RATIOS)))]),
        wording_seed=int(rng.integers(2**31)),
    )
