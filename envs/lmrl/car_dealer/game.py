"""`CarDealer`: sell a car to a buyer who bargains (LMRL-Gym, arXiv 2311.18232)."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.lmrl.car_dealer.buyer import (
    Buyer,
    LLMBuyer,
    ScriptedBuyer,
    last_price,
    mentioned_attributes,
)
from agentrl_jax.envs.lmrl.car_dealer.buyer_profile import (
    BRANDS,
    BUDGETS,
    CAR_TYPES,
    FEATURES,
    LIST_PRICE_RATIOS,
    PERSONALITIES,
    BuyerProfile,
    sample_profile,
)
from agentrl_jax.envs.lmrl.car_dealer.decision import (
    DECISION_PREFIX,
    Decision,
    fancy_reward,
    revenue_reward,
    split_decision,
)
from agentrl_jax.envs.lmrl.oracles import make_endpoint
from agentrl_jax.envs.options import checked_choice
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

MAX_TEXTS = 50  # of both sides together
MAX_SELLER_TEXT_LENGTH = 1000  # characters of a seller's text that the buyer reads
REWARDS: Mapping[str, Callable[[Decision, int], float]] = MappingProxyType(
    {"fancy": fancy_reward, "revenue": revenue_reward}
)
# With the scripted buyer, by reward: the list price is .8 to 1.5 of the budget, and a price exceeds
# neither.
REWARD_BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"fancy": (1 - 1 / min(LIST_PRICE_RATIOS), 1.0), "revenue": (0.0, max(BUDGETS) / 1000)}
)
# No car sold; the mean of LMRL-Gym's dataset; the expert's mean return over 20,000 buyers.
ANCHORS = (0.0, 0.562, 0.877)
GREETING = "How are you today?"
LISTING_PATTERN = re.compile(r"the (?P<car>\S+ \S+) listed at \$(?P<price>[\d,]+)")
# Asked, in percent of the list price, of a buyer who decides before making an offer.
HURRIED_PRICE_PERCENT = 75
BUYER_OPTIONS = ("personality", "brand", "type", "budget", "msrp")


def _random_action(env: Environment, rng: np.random.Generator) -> str:
    """Small talk, a feature, another car, or a price between 1,000 and 200,000 dollars."""
    kinds = (
        GREETING,
        "It is a very good car.",
        f"It has {FEATURES[rng.integers(len(FEATURES))]}.",
        f"What about this {BRANDS[rng.integers(len(BRANDS))]} "
        f"{CAR_TYPES[rng.integers(len(CAR_TYPES))]}?",
        f"The price is ${int(rng.integers(1, 201)) * 1000:,}.",
    )
    return kinds[rng.integers(len(kinds))]


def _expert_action(env: "CarDealer", rng: np.random.Generator) -> str:
    """Names the wished features and asks the reservation price; it reads the hidden profile."""
    profile = env.buyer_profile
    return (
        f"This {profile.brand} {profile.type} has {', '.join(profile.features)}. The price is "
        f"${profile.reservation_price(len(profile.features)):,}."
    )


def _seller_action(env: "CarDealer", rng: np.random.Generator) -> str:
    """Asks the list price, then takes the buyer's last offer before they decide.

    It reads only the dialogue: a buyer's first sentence reveals the turn in which they decide.
    """
    buyer_texts = env.dialogue[1::2]
    listed = LISTING_PATTERN.search(" ".join(buyer_texts))
    if not buyer_texts or (not listed and last_price(buyer_texts[-1]) is None):
        return GREETING
    decision_turn = next(
        (
            personality.decision_turn
            for personality in PERSONALITIES.values()
            if buyer_texts[0].startswith(personality.catchphrase)
        ),
        MAX_TEXTS,
    )
    deciding = len(buyer_texts) + 1 >= decision_turn
    offered = last_price(buyer_texts[-1]) if not LISTING_PATTERN.search(buyer_texts[-1]) else None
    if offered is not None and (deciding or not listed):
        return "Deal."
    assert listed
    wishes = mentioned_attributes(" ".join(buyer_texts))
    features = [feature for feature in FEATURES if feature in wishes]
    asking_price = (
        int(listed["price"].replace(",", "")) * (HURRIED_PRICE_PERCENT if deciding else 100) // 100
    )
    return f"This {listed['car']} has {', '.join(features)}. The price is ${asking_price:,}."


# Stands for LMRL-Gym's data policies and, like them, reads no hidden state. Its mean reward is
# about that of LMRL-Gym's dataset, .562.
DATA_POLICY = MixturePolicy(_seller_action, _random_action, 0.7)


class CarDealer(Forkable):
    """Sell a car to a buyer whose personality, wishes and budget are hidden.

    The history reads "Start\\n", the seller's text, the buyer's, ... . The buyer ends the dialogue
    with a line such as "Output: Decision=Accept MSRP=$60,000 Buy Price=$48,000", which is not shown
    and decides the reward. A buyer that has not decided when there are 50 texts is asked once to
    continue "Output: Decision="; without a decision the reward is 0. All other turns earn 0.
    `info["success"]` is whether the car was sold.

    Scripted policies: `random`, `seller` (asks the list price, reads only the dialogue), `mixture`
    (the seller with probability 0.7, else random) and `expert` (reads the profile). Reset options
    fix parts of the buyer: `personality`, `brand`, `type`, `budget`, `msrp`.

    Args:
        reward: "fancy" (price relative to budget and list price) or "revenue" (thousands of
            dollars).
        buyer: "scripted", or the endpoint of a language model as plain data, {"url": ..., "model":
            ...}.

    Raises:
        UserError: an option is unknown or out of range.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": DATA_POLICY,
            "seller": _seller_action,
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        reward: str = "fancy",
        buyer: str | Mapping[str, Any] = "scripted",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.reward = checked_choice("reward", reward, REWARDS)
        self.buyer: Buyer = (
            ScriptedBuyer() if buyer == "scripted" else LLMBuyer(make_endpoint(buyer))
        )
        scripted = isinstance(self.buyer, ScriptedBuyer)
        self.reward_bounds = REWARD_BOUNDS[reward] if scripted else (-np.inf, np.inf)
        self.score_anchors = ANCHORS if reward == "fancy" and scripted else None
        self.rules = (
            "Sell a car. A buyer has come for one of your cars; find out which, praise what it "
            "has, and bargain about the price.\n"
            "Name prices like this: $48,000. Take an offer by saying: Deal. The buyer decides "
            "within a few turns, and at the latest\n"
            f"when {MAX_TEXTS} texts were said. You earn more the closer the price is to the list "
            "price and to what the buyer can spend."
        )
        self.buyer_profile = BuyerProfile(
            "agreeable", BRANDS[0], CAR_TYPES[0], FEATURES[:1], BUDGETS[0], BUDGETS[0]
        )
        self.dialogue: tuple[str, ...] = ()

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - set(BUYER_OPTIONS):
            raise UserError(
                f"CarDealer has no reset option {sorted(unknown)}; it has: "
                f"{', '.join(BUYER_OPTIONS)}"
            )
        self.buyer_profile = _apply_options(sample_profile(self.np_random), options)
        self._rewind()
        return (user("Start\n"),), {}

    def _rewind(self) -> None:
        self.dialogue = ()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        dialogue = (*self.dialogue, " ".join(text[:MAX_SELLER_TEXT_LENGTH].split()))
        reply = self.buyer.reply(self.buyer_profile, dialogue)
        visible, decision = split_decision(reply)
        full = len(dialogue) + 1 >= MAX_TEXTS
        if decision is None and full:
            opening = f"{visible} {DECISION_PREFIX}"
            decision = split_decision(
                DECISION_PREFIX + self.buyer.reply(self.buyer_profile, dialogue, opening)
            )[1]
        self.dialogue = (*dialogue, visible)
        done = decision is not None or full
        reward = REWARDS[self.reward](decision, self.buyer_profile.budget) if decision else 0.0
        return (
            (user(visible + "\n"),),
            reward,
            done,
            False,
            {"success": decision is not None and decision.accepted} if done else {},
        )


def _apply_options(profile: BuyerProfile, options: Mapping[str, Any]) -> BuyerProfile:
    """The profile with the options; a budget alone is also the list price.

    Raises:
        UserError: a value is never sampled.
    """
    budget = options.get("budget", profile.budget)
    list_prices = (
        tuple(round(budget * ratio) for ratio in LIST_PRICE_RATIOS) if budget in BUDGETS else ()
    )
    allowed = {
        "personality": tuple(PERSONALITIES),
        "brand": BRANDS,
        "type": CAR_TYPES,
        "budget": BUDGETS,
        "msrp": list_prices,
    }
    for name, value in options.items():
        if value not in allowed[name]:
            raise UserError(
                f"{name} must be one of {', '.join(map(str, allowed[name]))}, not {value!r}"
            )
    return dataclasses.replace(
        profile, **{**({"msrp": budget} if "budget" in options else {}), **options}
    )
