"""`Shop`: buy a product that an instruction asks for (WebShop, arXiv 2207.01206).

The default form is ArCHer's (arXiv 2402.19446).
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.options import checked_bool, checked_choice, checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.shop.catalogue import Product, catalogue
from agentrl_jax.envs.shop.goals import GOALS_PER_PRODUCT, goals
from agentrl_jax.envs.shop.matching import ShoppingGoal, purchase_reward
from agentrl_jax.envs.shop.pages import (
    BACK,
    BUY,
    NEXT,
    PREVIOUS,
    Page,
    PageElement,
    Storefront,
    render_bracketed,
    render_separated,
)
from agentrl_jax.envs.shop.search import product_index, tokenize
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

FORMS = ("archer", "webshop")
ACTION_PATTERN = re.compile(r"(search|click|think)\[(.*)\]")


def _random_action(env: "Shop", rng: np.random.Generator) -> str:
    """Searches for one to three words of the instruction, then clicks on a uniform element."""
    labels = env.store.clickable(env.page)
    if not labels:
        words = tokenize(env.goal.instruction)
        indices = rng.integers(len(words), size=rng.integers(1, 4))
        return f"search[{' '.join(words[i] for i in indices)}]"
    return f"click[{labels[rng.integers(len(labels))]}]"


def _expert_action(env: "Shop", rng: np.random.Generator) -> str:
    """Searches for the target's title, opens it, chooses the options and buys it.

    It reads the target product, which the agent does not see.
    """
    page, goal, links = env.page, env.goal, env.store.links(env.page)
    if page.results is None:
        return f"search[{goal.product.title}]"
    if page.product is None:
        is_target = [
            env.products[number].asin == goal.product.asin
            for number in page.results[(page.results_page - 1) * env.store.per_page :]
        ]
        ahead = NEXT if any(is_target) and NEXT in links else BACK
        return f"click[{goal.product.asin if goal.product.asin in links else ahead}]"
    if env.products[page.product].asin != goal.product.asin:
        return f"click[{BACK}]"
    if page.detail:
        return f"click[{PREVIOUS}]"
    missing = [
        value for name, value in goal.options.items() if (name, value) not in page.chosen_options
    ]
    return f"click[{missing[0] if missing else BUY}]"


class Shop(Forkable):
    """WebShop's actions and reward over a generated catalogue.

    Actions are "search[red canvas sneaker]", "click[B0T1C2K3S4]", "click[Buy Now]". A search
    returns at most 50 products. A product page has options, chosen by clicks on their values, and
    detail pages. The purchase ends the episode with WebShop's reward (`matching.purchase_reward`),
    0 to 1; a reward of 1 is success. All other turns earn 0. `info["legal"]` is whether the action
    was possible.

    Scripted policies: `random`, `expert` (reads the target) and `mixture` (the expert with
    probability 0.8). Reset option: `goal`, the index of a goal.

    Args:
        form: "archer" is ArCHer's: pages are lines with buttons in brackets, clicks are spelled as
            on the page, only the search page searches, "think[...]" is answered by "OK.", a choice
            by "You have clicked red.", and anything impossible by "Invalid action!". "webshop" is
            the original's: every page shows the instruction, elements are joined by " [SEP] ", case
            is ignored, every page searches, and anything impossible shows the same page again.
        horizon: turns before truncation.
        products: size of the catalogue.
        catalogue_seed: seed of the catalogue.
        goals_from: index of the first goal to sample; the catalogue has two goals per product.
        goals_to: index after the last goal to sample; default: all.
        per_page: products on a result page.
        first_page_only: whether "Next >" is missing, as in ArCHer.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "expert": _expert_action,
        }
    )
    reward_bounds: tuple[float, float] = (0.0, 1.0)

    def __init__(
        self,
        form: str = "archer",
        horizon: int = 10,
        products: int = 1000,
        catalogue_seed: int = 0,
        goals_from: int = 0,
        goals_to: int | None = None,
        per_page: int = 3,
        first_page_only: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.form = checked_choice("form", form, FORMS)
        self.horizon = checked_int("horizon", horizon, 1, 1000)
        self.catalogue_key = (
            checked_int("products", products, 40, 20_000),
            checked_int("catalogue_seed", catalogue_seed, 0, 2**31),
        )
        num_goals = GOALS_PER_PRODUCT * products
        self.goals_from = checked_int("goals_from", goals_from, 0, num_goals - 1)
        self.goals_to = (
            num_goals
            if goals_to is None
            else checked_int("goals_to", goals_to, self.goals_from + 1, num_goals)
        )
        self.per_page = checked_int("per_page", per_page, 1, 50)
        self.first_page_only = checked_bool("first_page_only", first_page_only)
        self.rules = (
            f"Buy what the instruction asks for within {horizon} turns: the right kind, "
            "attributes, options and price.\n"
            "Write search[words] on the search page, and click[...] with the text of any button, "
            "such as click[< Prev], click[red],\n"
            "click[Buy Now]. Choose the options before you buy; the more of what was asked for, "
            "the higher the score."
        )
        self.goal_index = 0
        self.page = Page()
        self.turns = 0

    # The catalogue is cached outside: environments are copied and pickled often.
    @property
    def products(self) -> tuple[Product, ...]:
        count, seed = self.catalogue_key
        return catalogue(seed, count)

    @property
    def goal(self) -> ShoppingGoal:
        """The goal of the episode."""
        count, seed = self.catalogue_key
        return goals(seed, count)[self.goal_index]

    @property
    def store(self) -> Storefront:
        return Storefront(self.products, self.per_page, self.first_page_only)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"goal"}:
            raise UserError(f"Shop has no reset option {sorted(unknown)}; it has: goal")
        sampled = int(self.np_random.integers(self.goals_from, self.goals_to))
        self.goal_index = checked_int(
            "goal", options.get("goal", sampled), 0, GOALS_PER_PRODUCT * self.catalogue_key[0] - 1
        )
        self._rewind()
        return (user(self._page_text() + "\n"),), {}

    def _rewind(self) -> None:
        self.page, self.turns = Page(), 0

    def _page_text(self) -> str:
        """The current page as text."""
        lines = self.store.lines(self.page)
        instruction = [
            [PageElement("Instruction:", is_button=False)],
            [PageElement(self.goal.instruction, is_button=False)],
        ]
        if self.form == "webshop":
            return render_separated([*instruction, *lines])
        return render_bracketed([*instruction, *lines] if self.page.results is None else lines)

    def _next_page(self, verb: str, argument: str) -> Page | None:
        """The page that an action leads to; None where it is impossible."""
        if verb == "search":
            is_allowed = argument.strip() != "" and (
                self.form == "webshop" or self.page.results is None
            )
            count, seed = self.catalogue_key
            return Page(product_index(seed, count).search(argument)) if is_allowed else None
        return self.store.links(self.page).get(argument) if verb == "click" else None

    def _clicked_label(self, argument: str) -> str:
        """The label that a click refers to: exact, or without regard to case in WebShop's form."""
        if self.form == "archer":
            return argument
        lowered = argument.lower()
        return next(
            (label for label in self.store.clickable(self.page) if label.lower() == lowered),
            argument,
        )

    def _observation_text(
        self, page: Page, next_page: Page | None, label: str, is_thought: bool
    ) -> str:
        if self.form == "webshop":
            return self._page_text()
        if next_page is None:
            return "OK." if is_thought else "Invalid action!"
        is_option_click = page.product is not None and (page.product, page.detail) == (
            next_page.product,
            next_page.detail,
        )
        return f"You have clicked {label}." if is_option_click else self._page_text()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        match = ACTION_PATTERN.fullmatch(text.strip())
        verb, argument = match.groups() if match else ("", "")
        label = self._clicked_label(argument) if verb == "click" else argument
        before = self.page
        if verb == "click" and label == BUY and before.product is not None and not before.detail:
            score = purchase_reward(
                self.products[before.product], dict(before.chosen_options), self.goal
            )
            return (
                (user(f"Your score (min 0.0, max 1.0): {score}\n"),),
                score,
                True,
                False,
                {"legal": True, "success": score == 1},
            )
        after, thought = self._next_page(verb, label), verb == "think" and self.form == "archer"
        self.page = after or before
        info: dict[str, Any] = {"legal": after is not None or thought}
        cut = self.turns == self.horizon
        if cut:
            info["success"] = False
        return (
            (user(self._observation_text(before, after, label, thought) + "\n"),),
            0.0,
            False,
            cut,
            info,
        )
