"""`Shop`: find what a customer asked for, choose its options and buy it (WebShop, arXiv 2207.01206; ArCHer, arXiv 2402.19446)."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Environment, Messages, Player
from agentrl_jax.envs.players import Mixed
from agentrl_jax.envs.probes.probe import flag, whole
from agentrl_jax.envs.rewindable import Rewindable
from agentrl_jax.envs.shop.catalogue import Product, catalogue
from agentrl_jax.envs.shop.goals import A_PRODUCT, goals
from agentrl_jax.envs.shop.matching import Goal, reward
from agentrl_jax.envs.shop.pages import BACK, BUY, NEXT, PREVIOUS, Page, Piece, Store, bracketed, separated
from agentrl_jax.envs.shop.search import index, words_of
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

FORMS = ("archer", "webshop")
ACTION = re.compile(r"(search|click|think)\[(.*)\]")


def _random(env: Environment, rng: np.random.Generator) -> str:
    """Searches for one to three words of the instruction, and then clicks uniformly on anything."""
    assert isinstance(env, Shop)
    labels = env.store.clickable(env.page)
    if not labels:
        words = words_of(env.goal.instruction)
        return f"search[{' '.join(words[i] for i in rng.integers(len(words), size=rng.integers(1, 4)))}]"
    return f"click[{labels[rng.integers(len(labels))]}]"


def _expert(env: Environment, rng: np.random.Generator) -> str:
    """Knows the product that the customer has in mind: searches for its title, opens it, chooses what was asked for and buys it."""
    assert isinstance(env, Shop)
    page, goal, links = env.page, env.goal, env.store.links(env.page)
    if page.found is None:
        return f"search[{goal.product.title}]"
    if page.product is None:
        wanted = [env.products[number].asin == goal.product.asin for number in page.found[(page.number - 1) * env.store.per_page :]]
        ahead = NEXT if any(wanted) and NEXT in links else BACK
        return f"click[{goal.product.asin if goal.product.asin in links else ahead}]"
    if env.products[page.product].asin != goal.product.asin:
        return f"click[{BACK}]"
    if page.detail:
        return f"click[{PREVIOUS}]"
    missing = [value for name, value in goal.options.items() if (name, value) not in page.chosen]
    return f"click[{missing[0] if missing else BUY}]"


class Shop(Rewindable):
    """WebShop's actions and reward over a catalogue of our own: "search[red canvas sneaker]", "click[B0T1C2K3S4]", "click[Buy Now]".

    A search finds 50 products at most. A product has options, to be chosen by clicks on their values, and pages of details. The purchase
    ends the episode with WebShop's reward (`matching.reward`), 0 to 1, and a reward of 1 is success; nothing else earns anything. The
    turn that makes `horizon` turns without a purchase truncates the episode.

    `form` "archer" is ArCHer's: a page is lines with its buttons in brackets, clicks must be spelled as the page does, only the search
    page searches, "think[...]" is answered by "OK.", a choice by "You have clicked red.", and anything that is not possible by "Invalid
    action!", at the cost of a turn. `form` "webshop" is the original's: every page with the instruction, its pieces joined by " [SEP] ",
    small and large letters are the same, every page searches, and anything that is not possible shows the same page again.

    `products` and `catalogue_seed` make the catalogue; there are two goals for each product, and an episode draws one from number
    `goals_from` up to but without `goals_to`. `first_page_only` refuses "Next >", as ArCHer does.
    `info["legal"]` says whether the action was possible. Reset option: `goal`, the number of one of all goals.
    """

    players: ClassVar[Mapping[str, Player]] = MappingProxyType(
        {"random": _random, "mixture": Mixed(_expert, _random, 0.8), "expert": _expert}
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
        if form not in FORMS:
            raise UserError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
        self.form, self.horizon = form, whole("horizon", horizon, 1, 1000)
        self.size = whole("products", products, 40, 20_000), whole("catalogue_seed", catalogue_seed, 0, 2**31)
        every = A_PRODUCT * products
        self.goals_from = whole("goals_from", goals_from, 0, every - 1)
        self.goals_to = every if goals_to is None else whole("goals_to", goals_to, self.goals_from + 1, every)
        self.per_page = whole("per_page", per_page, 1, 50)
        self.first_page_only = flag("first_page_only", first_page_only)
        self.rules = (
            f"Buy what the instruction asks for within {horizon} turns: the right kind, attributes, options and price.\n"
            "Write search[words] on the search page, and click[...] with the text of any button, such as click[< Prev], click[red],\n"
            "click[Buy Now]. Choose the options before you buy; the more of what was asked for, the higher the score."
        )
        self.number = 0
        self.page = Page()
        self.turns = 0

    # The catalogue is looked up, not held: a world is copied and sent often.
    @property
    def products(self) -> tuple[Product, ...]:
        count, seed = self.size
        return catalogue(seed, count)

    @property
    def goal(self) -> Goal:
        """What the customer has in mind."""
        count, seed = self.size
        return goals(seed, count)[self.number]

    @property
    def store(self) -> Store:
        return Store(self.products, self.per_page, self.first_page_only)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"goal"}:
            raise UserError(f"Shop has no reset option {sorted(unknown)}; it has: goal")
        drawn = int(self.np_random.integers(self.goals_from, self.goals_to))
        self.number = whole("goal", options.get("goal", drawn), 0, A_PRODUCT * self.size[0] - 1)
        self._rewind()
        return (user(self._shown() + "\n"),), {}

    def _rewind(self) -> None:
        self.page, self.turns = Page(), 0

    def _shown(self) -> str:
        """The page as it reads."""
        lines, asked = self.store.lines(self.page), [[Piece("Instruction:", button=False)], [Piece(self.goal.instruction, button=False)]]
        if self.form == "webshop":
            return separated([*asked, *lines])
        return bracketed([*asked, *lines] if self.page.found is None else lines)

    def _after(self, verb: str, argument: str) -> Page | None:
        """The page that an action leads to; None where it is not possible."""
        if verb == "search":
            may = argument.strip() != "" and (self.form == "webshop" or self.page.found is None)
            count, seed = self.size
            return Page(index(seed, count).find(argument)) if may else None
        return self.store.links(self.page).get(argument) if verb == "click" else None

    def _label(self, argument: str) -> str:
        """The button that a click means: as it is spelled, or in WebShop's form however it is."""
        if self.form == "archer":
            return argument
        meant = argument.lower()
        return next((label for label in self.store.clickable(self.page) if label.lower() == meant), argument)

    def _answer(self, before: Page, after: Page | None, label: str, thought: bool) -> str:
        if self.form == "webshop":
            return self._shown()
        if after is None:
            return "OK." if thought else "Invalid action!"
        chose = before.product is not None and (before.product, before.detail) == (after.product, after.detail)
        return f"You have clicked {label}." if chose else self._shown()

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        self.turns += 1
        said = ACTION.fullmatch(text.strip())
        verb, argument = said.groups() if said else ("", "")
        label = self._label(argument) if verb == "click" else argument
        before = self.page
        if verb == "click" and label == BUY and before.product is not None and not before.detail:
            score = reward(self.products[before.product], dict(before.chosen), self.goal)
            return (user(f"Your score (min 0.0, max 1.0): {score}\n"),), score, True, False, {"legal": True, "success": score == 1}
        after, thought = self._after(verb, label), verb == "think" and self.form == "archer"
        self.page = after or before
        info: dict[str, Any] = {"legal": after is not None or thought}
        cut = self.turns == self.horizon
        if cut:
            info["success"] = False
        return (user(self._answer(before, after, label, thought) + "\n"),), 0.0, False, cut, info
