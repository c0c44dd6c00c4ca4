"""`CarDealer`: sell a car to a buyer who bargains (LMRL-Gym, arXiv 2311.18232)."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.lmrl.car_dealer.brief import BRANDS, BUDGETS, FEATURES, PERSONALITIES, SHARES, TYPES, Brief, drawn
from agentrl_jax.envs.lmrl.car_dealer.buyer import AskedBuyer, Buyer, ScriptedBuyer, goods, price
from agentrl_jax.envs.lmrl.car_dealer.decision import OPENING, Decision, cut, fancy, revenue
from agentrl_jax.envs.lmrl.oracles import endpoint
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

TEXTS = 50  # of both sides together
LETTERS = 1000  # of a seller's text that a buyer hears
REWARDS: Mapping[str, Callable[[Decision, int], float]] = MappingProxyType({"fancy": fancy, "revenue": revenue})
# Of the scripted buyer, by reward: the list price is .8 to 1.5 of the budget, and nobody pays more than either.
BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType({"fancy": (1 - 1 / min(SHARES), 1.0), "revenue": (0.0, max(BUDGETS) / 1000)})
# No car sold; the mean of LMRL-Gym's data set; the expert's mean return, measured here over 20,000 buyers.
ANCHORS = (0.0, 0.562, 0.877)
GREETING = "How are you today?"
LISTED = re.compile(r"the (?P<car>\S+ \S+) listed at \$(?P<price>[\d,]+)")
HASTE = 75  # percent of the list price, which the seller asks of a buyer who decides before they offered anything
FIXED = ("personality", "brand", "type", "budget", "msrp")


def _random(env: Environment, rng: np.random.Generator) -> str:
    """Small talk, a feature, another car, or a price between 1,000 and 200,000 dollars."""
    kinds = (
        GREETING,
        "It is a very good car.",
        f"It has {FEATURES[rng.integers(len(FEATURES))]}.",
        f"What about this {BRANDS[rng.integers(len(BRANDS))]} {TYPES[rng.integers(len(TYPES))]}?",
        f"The price is ${int(rng.integers(1, 201)) * 1000:,}.",
    )
    return kinds[rng.integers(len(kinds))]


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Praises what the buyer wishes for and asks for their limit, which it reads off the brief: it is privileged."""
    assert isinstance(env, CarDealer)
    brief = env.brief
    return f"This {brief.brand} {brief.type} has {', '.join(brief.features)}. The price is ${brief.limit(len(brief.features)):,}."


def _seller(env: Environment, rng: np.random.Generator) -> str:
    """Asks what the buyer came for, then the list price, and takes the buyer's offer when they are about to decide.

    It knows what was said: when a buyer decides, the manner of their first sentence tells.
    """
    assert isinstance(env, CarDealer)
    heard = env.talk[1::2]
    listed = LISTED.search(" ".join(heard))
    if not heard or (not listed and price(heard[-1]) is None):
        return GREETING
    patience = next((who.patience for who in PERSONALITIES.values() if heard[0].startswith(who.manner)), TEXTS)
    deciding = len(heard) + 1 >= patience
    offered = price(heard[-1]) if not LISTED.search(heard[-1]) else None
    if offered is not None and (deciding or not listed):
        return "Deal."
    assert listed
    wishes = goods(" ".join(heard))
    features = [feature for feature in FEATURES if feature in wishes]
    asked = int(listed["price"].replace(",", "")) * (HASTE if deciding else 100) // 100
    return f"This {listed['car']} has {', '.join(features)}. The price is ${asked:,}."


def mixture(prob_seller: float = 0.7) -> Player:
    """With `prob_seller` what the seller says, else something random: a data policy that sees what a policy sees, as LMRL-Gym's own.

    The default's mean reward is about that of LMRL-Gym's data set, .562.
    """
    return Mixed(_seller, _random, prob_seller)


class CarDealer(Rewindable):
    """The agent sells a car to a buyer whose personality, wishes and budget it is not told.

    The history reads "Start\\n", the seller's text, the buyer's, ... . The buyer ends the talk with a line such as "Output:
    Decision=Accept MSRP=$60,000 Buy Price=$48,000", which is not shown; then `reward` is due: "fancy" or "revenue" (thousands of
    dollars). A buyer that has not decided when the talk has 50 texts is asked once for the rest of "Output: Decision="; without an
    answer the reward is 0. All other texts earn 0. `info["success"]` says whether the car was sold.

    `buyer` is "scripted", or the endpoint of a language model as plain data, {"url": ..., "model": ...}. Reset options fix parts of
    the buyer: `personality`, `brand`, `type`, `budget`, `msrp`. Raises UserError where an option is unknown or out of range.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "mixture": mixture(), "seller": _seller, "expert": _expert}
    )

    def __init__(self, reward: str = "fancy", buyer: str | Mapping[str, Any] = "scripted", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        if reward not in REWARDS:
            raise UserError(f"reward must be one of {', '.join(REWARDS)}, not {reward!r}")
        self.reward = reward
        self.buyer: Buyer = ScriptedBuyer() if buyer == "scripted" else AskedBuyer(endpoint(buyer))
        scripted = isinstance(self.buyer, ScriptedBuyer)
        self.reward_bounds = BOUNDS[reward] if scripted else (-np.inf, np.inf)
        self.score_anchors = ANCHORS if reward == "fancy" and scripted else None
        self.rules = (
            "Sell a car. A buyer has come for one of your cars; find out which, praise what it has, and bargain about the price.\n"
            "Name prices like this: $48,000. Take an offer by saying: Deal. The buyer decides within a few turns, and at the latest\n"
            f"when {TEXTS} texts were said. You earn more the closer the price is to the list price and to what the buyer can spend."
        )
        self.brief = Brief("agreeable", BRANDS[0], TYPES[0], FEATURES[:1], BUDGETS[0], BUDGETS[0])
        self.talk: tuple[str, ...] = ()

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - set(FIXED):
            raise UserError(f"CarDealer has no reset option {sorted(unknown)}; it has: {', '.join(FIXED)}")
        self.brief = _fixed(drawn(self.np_random), options)
        self._rewind()
        return (user("Start\n"),), {}

    def _rewind(self) -> None:
        self.talk = ()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        talk = (*self.talk, " ".join(text[:LETTERS].split()))
        said = self.buyer.reply(self.brief, talk)
        visible, decision = cut(said)
        full = len(talk) + 1 >= TEXTS
        if decision is None and full:
            opening = f"{visible} {OPENING}"
            decision = cut(OPENING + self.buyer.reply(self.brief, talk, opening))[1]
        self.talk = (*talk, visible)
        done = decision is not None or full
        reward = REWARDS[self.reward](decision, self.brief.budget) if decision else 0.0
        return (user(visible + "\n"),), reward, done, False, {"success": decision is not None and decision.accepted} if done else {}


def _fixed(brief: Brief, options: Mapping[str, Any]) -> Brief:
    """The brief with the parts that options fix; a budget alone is also the list price. Raises UserError where one is never drawn."""
    budget = options.get("budget", brief.budget)
    listed = tuple(round(budget * share) for share in SHARES) if budget in BUDGETS else ()
    allowed = {"personality": tuple(PERSONALITIES), "brand": BRANDS, "type": TYPES, "budget": BUDGETS, "msrp": listed}
    for name, value in options.items():
        if value not in allowed[name]:
            raise UserError(f"{name} must be one of {', '.join(map(str, allowed[name]))}, not {value!r}")
    return dataclasses.replace(brief, **{**({"msrp": budget} if "budget" in options else {}), **options})
