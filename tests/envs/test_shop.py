"""The shop against restated pages, search and reward, and hand-worked tables."""

import math
import pickle
import random
import re
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import numpy as np
import pytest
from support.env_episodes import play_scripted_episode

from agentrl_jax.environment import make
from agentrl_jax.envs.shop.catalogue import DEPARTMENT_KINDS, DEPARTMENTS, Product, catalogue
from agentrl_jax.envs.shop.goals import goals
from agentrl_jax.envs.shop.matching import (
    ShoppingGoal,
    count_matched_attributes,
    count_matched_options,
    kind_factor,
    purchase_reward,
    token_set_ratio,
)
from agentrl_jax.envs.shop.search import build_index, product_index, searchable_text
from agentrl_jax.envs.shop.shop import Shop
from agentrl_jax.errors import UserError
from agentrl_jax.messages import texts


def shop(**options) -> Shop:
    env = make("agentrl/Shop-v0", options)
    assert isinstance(env, Shop)
    return env


def product(**changes) -> Product:
    plain = Product(
        asin="B000000000",
        title="Acme tea kettle, rust proof, quick heating",
        price=20.0,
        options=MappingProxyType({"color": ("red", "blue"), "size": ("small", "large")}),
        features=("rust proof from the first day on",),
        description="By Acme.",
        attributes=("rust proof", "quick heating"),
        category=("home", "cookware", "tea kettles"),
        query="tea kettles",
        nouns=frozenset({"tea", "kettle"}),
    )
    return replace(plain, **changes)


def goal(**changes) -> ShoppingGoal:
    plain = ShoppingGoal(
        product(),
        ("rust proof", "quick heating"),
        MappingProxyType({"color": "red", "size": "small"}),
        30.0,
        "a kettle",
    )
    return replace(plain, **changes)


@cache
def restated_common_length(first: str, second: str) -> int:
    if not first or not second:
        return 0
    if first[-1] == second[-1]:
        return restated_common_length(first[:-1], second[:-1]) + 1
    return max(
        restated_common_length(first[:-1], second), restated_common_length(first, second[:-1])
    )


def restated_ratio(first: str, second: str) -> int:
    """The best ratio of the three pairs; a pair with an empty text does not count."""
    a, b = ({w for w in re.sub(r"\W", " ", t.lower()).split(" ") if w} for t in (first, second))
    both = " ".join(sorted(a & b))
    left, right = (f"{both} {' '.join(sorted(x - (a & b)))}".strip() for x in (a, b))
    pairs = [(left, right), (both, left), (both, right)]
    return max(
        round(100 * 2 * restated_common_length(x, y) / (len(x) + len(y))) if x and y else 0
        for x, y in pairs
    )


def test_token_set_ratios_match_the_restated_ones():
    dice = random.Random(0)
    phrases = sorted(
        {a for d in DEPARTMENTS for a in d.attributes}
        | {v for d in DEPARTMENTS for vs in d.options.values() for v in vs}
    )
    for _ in range(400):
        first, second = dice.choice(phrases), dice.choice(phrases)
        if dice.random() < 0.5:
            words = [*first.split(), *second.split()]
            second = " ".join(dice.sample(words, dice.randrange(1, len(words)))) + dice.choice(
                ["", "s", "!"]
            )
        assert (
            token_set_ratio(first, second)
            == token_set_ratio(second, first)
            == restated_ratio(first, second)
        )


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [
        ("red", "red", 100),
        ("Machine Washable!", "washable machine", 100),
        ("long lasting", "long lasting battery", 100),  # one holds all words of the other
        ("pack of 1", "pack of 12", 95),  # "of pack 1" and "of pack 12": 2 * 9 / 19
        ("abc", "abx", 67),  # 2 * 2 / 6
        ("red", "blue", 29),  # only the e: 2 / 7
        ("gluten free", "sugar free", 57),  # "free gluten" and "free sugar": 2 * 6 / 21
        ("", "red", 0),
        ("...", "...", 0),
    ],
)
def test_token_set_ratios_by_hand(first, second, ratio):
    assert token_set_ratio(first, second) == ratio


@pytest.mark.parametrize(
    ("bought", "factor"),
    [
        ({}, 1.0),
        # another shelf and query, but a shared noun
        (
            {"query": "tea pots", "category": ("x", "y", "z"), "nouns": frozenset({"tea", "pot"})},
            1.0,
        ),
        # no shared noun: nothing else helps
        ({"nouns": frozenset({"pan"})}, 0.0),
    ],
)
def test_kind_factors_by_hand(bought, factor):
    assert kind_factor(product(**bought), goal()) == factor


@pytest.mark.parametrize(
    ("shared", "of", "near", "factor"),
    [
        (1, 5, False, 0.5),
        (1, 5, True, 1.0),
        (1, 4, False, 1.0),
        (1, 10, False, 0.5),
        (1, 11, False, 0.1),
        (1, 11, True, 0.1),
        (0, 3, True, 0.0),
    ],
)
def test_kind_factors_of_titles_with_many_nouns(shared, of, near, factor):
    target = goal(product=product(nouns=frozenset(map(str, range(of)))))
    far = {} if near else {"query": "tea pots", "category": ("home", "y", "z")}
    assert kind_factor(product(nouns=frozenset(map(str, range(shared))), **far), target) == factor


@pytest.mark.parametrize(
    ("bought", "chosen", "score"),
    [
        ({}, {"color": "red", "size": "small"}, 1.0),
        ({}, {"color": "red", "size": "large"}, 4 / 5),
        ({}, {}, 3 / 5),
        ({"price": 30.0}, {"color": "red"}, 4 / 5),  # the limit itself is not beyond it
        ({"price": 30.01}, {"color": "red"}, 3 / 5),
        (
            {"attributes": ("rust proof",), "title": "Acme tea kettle", "features": ()},
            {"color": "red", "size": "small"},
            4 / 5,
        ),
        (
            {
                "attributes": (),
                "title": "Acme tea kettle, quick heating",
                "features": ("so rust proof",),
            },
            {"color": "blue"},
            3 / 5,
        ),
        (
            {"attributes": ("rust-proof", "heating: quick")},
            {"color": "dark red", "size": "small size"},
            4 / 5,
        ),  # alike, but sizes are exact
        ({"nouns": frozenset({"pan"})}, {"color": "red", "size": "small"}, 0.0),
    ],
)
def test_the_reward_by_hand(bought, chosen, score):
    assert purchase_reward(product(**bought), chosen, goal()) == pytest.approx(score, abs=1e-12)


def restated_reward(bought: Product, chosen: dict[str, str], target: ShoppingGoal) -> float:
    points, everything = 0, "|".join((bought.title, *bought.features, bought.description)).lower()
    for attribute in target.attributes:
        points += (
            max([restated_ratio(attribute, has) for has in bought.attributes]) > 85
            or attribute in everything
        )
    for name, value in chosen.items():
        ratios = [
            100 * (value == v) if name == "size" else restated_ratio(value, v)
            for v in target.options.values()
        ]
        points += max(ratios) > 85
    points += not bought.price > target.max_price
    ours, theirs = bought.query[:-1].split(), target.product.query[:-1].split()
    share = sum(noun in ours for noun in theirs) / len(theirs)
    return 0.0 if share == 0 else points / (len(target.attributes) + len(target.options) + 1)


def test_purchase_rewards_match_the_restated_ones():
    dice, scores, env = random.Random(1), set(), shop()
    for _ in range(400):
        target = dice.choice(goals(0, 1000))
        pool = (
            [p for p in env.products if p.nouns & target.product.nouns]
            if dice.random() < 0.8
            else env.products
        )
        bought = dice.choice(pool)
        chosen = {
            name: dice.choice(values)
            for name, values in bought.options.items()
            if dice.random() < 0.7
        }
        score = purchase_reward(bought, chosen, target)
        assert (
            score == pytest.approx(restated_reward(bought, chosen, target), abs=1e-12)
            and 0 <= score <= 1
        )
        scores.add(round(score, 3))
    assert len(scores) > 8 and 0 in scores


def test_values_of_an_option_do_not_match_each_other():
    """So that no purchase matches more than the goal asks for, nor a wrong choice counts."""
    for department in DEPARTMENTS:
        pairs = [(name, value) for name, values in department.options.items() for value in values]
        assert all(
            token_set_ratio(x, y) <= 85 or (m == n and (m == "size" or x == y))
            for m, x in pairs
            for n, y in pairs
        )
        assert all(
            token_set_ratio(x, y) <= 85
            for x in department.attributes
            for y in department.attributes
            if x != y
        )


def test_a_catalogue_has_products_of_all_kinds_with_distinct_links():
    products = catalogue(0, 1000)
    assert (
        len({p.asin for p in products}) == len(products) == 1000
        and len(DEPARTMENTS) == 8
        and len(DEPARTMENT_KINDS) == 40
    )
    assert {p.query: sum(q.query == p.query for q in products) for p in products} == {
        f"{kind}s": 25 for _, kind in DEPARTMENT_KINDS
    }
    assert all(
        re.fullmatch("B[0-9A-Z]{9}", p.asin) and len(set(p.attributes)) == 4 and p.price > 0
        for p in products
    )
    assert all(2 <= len(values) <= 3 for p in products for values in p.options.values())
    assert catalogue(0, 40) == products[:40] and catalogue(1, 40) != products[:40]


def test_no_product_text_names_an_option():
    """WebShop rewards a chosen option that the product's own text names; here no text does."""
    for each in catalogue(0, 1000):
        assert not any(
            re.search(rf"\b{value}\b", each.text)
            for values in each.options.values()
            for value in values
        )


def test_every_goal_is_attainable_and_states_its_constraints():
    every_goal = goals(0, 1000)
    assert len(every_goal) == 2000 and len({g.instruction for g in every_goal}) > 1990
    for target in every_goal:
        assert purchase_reward(target.product, target.options, target) == 1
        assert all(
            value in target.product.options[name] and f"{name}: {value}" in target.instruction
            for name, value in target.options.items()
        )
        assert 1 <= len(target.attributes) <= 3 and all(
            a in target.instruction for a in target.attributes
        )
        assert (
            target.max_price % 10 == 0 and 10 < target.max_price - target.product.price + 10 <= 50
        )
        assert (
            target.instruction.endswith(f"price lower than {target.max_price:.2f} dollars")
            and target.product.query in target.instruction
        )


def restated_search(query: str, documents: list[str]) -> list[int]:
    bags = [re.sub("[^a-z0-9]", " ", text.lower()).split() for text in documents]
    mean, scores = sum(map(len, bags)) / len(bags), []
    for number, bag in enumerate(bags):
        score = 0.0
        for word in set(re.sub("[^a-z0-9]", " ", query.lower()).split()):
            n = sum(word in second for second in bags)
            f = bag.count(word)
            score += (
                math.log((len(bags) + 1) / (n + 0.5))
                * f
                * 1.9
                / (f + 0.9 * (0.6 + 0.4 * len(bag) / mean))
            )
        scores.append((-round(score, 9), number))
    return [number for score, number in sorted(scores) if score < 0][:50]


def test_search_results_match_the_restated_search():
    dice, documents = random.Random(2), [searchable_text(p) for p in catalogue(5, 80)]
    words = sorted({word for text in documents for word in text.lower().split()})
    for _ in range(30):
        query = " ".join(dice.choices([*words, "nothing", "Tea", "?!"], k=dice.randrange(5)))
        assert list(product_index(5, 80).search(query)) == restated_search(query, documents)


def test_the_search_by_hand():
    search = build_index(
        [
            "red tea kettle",
            "blue tea kettle",
            "red pan",
            "red red red pan and a long story about it",
        ]
    ).search
    assert search("kettle red") == (0, 1, 3, 2) or search("kettle red") == (0, 1, 2, 3)
    assert search("pan")[0] == 2 and search("blue") == (1,) and search("") == search("zebra") == ()


class RestatedShop:
    """Keeps the search, page, product and choices, and writes each page anew."""

    def __init__(self, env: Shop):
        self.env, self.form, self.count = env, env.form, 0
        self.goal, self.by_link = env.goal, {p.asin: p for p in env.products}
        self.at, self.results, self.sheet, self.item, self.picked, self.detail = (
            "search",
            [],
            1,
            None,
            {},
            "",
        )

    def rows(self) -> list[Product]:
        per = self.env.per_page
        return [self.env.products[n] for n in self.results][
            per * (self.sheet - 1) : per * self.sheet
        ]

    def lines(self) -> list[str]:
        if self.at == "search":
            return ["[Search]"]
        out = ["[Back to Search]"]
        if self.at == "results":
            out.append(f"Page {self.sheet} (Total results: {len(self.results)})")
            out += ["[Next >]"] * (
                len(self.results) > self.sheet * self.env.per_page and not self.env.first_page_only
            )
            out += ["[< Prev]"] * (self.sheet > 1)
            for row in self.rows():
                out += [f"[{row.asin}]", row.title, f"${row.price:.2f}"]
            return out
        assert self.item is not None
        out.append("[< Prev]")
        if self.at == "detail":
            details = {
                "Description": [self.item.description],
                "Features": list(self.item.features),
                "Reviews": ["There are no reviews yet."],
            }
            return out + details[self.detail]
        for name, values in self.item.options.items():
            out.append(
                f"{name} "
                + "".join(f"[[{v}]]" if self.picked.get(name) == v else f"[{v}]" for v in values)
            )
        return [
            *out,
            self.item.title,
            f"Price: ${self.item.price:.2f}",
            "Rating: N.A.",
            "[Description]",
            "[Features]",
            "[Reviews]",
            "[Buy Now]",
        ]

    def text(self) -> str:
        instruction, lines = ["Instruction:", self.goal.instruction], self.lines()
        if self.form == "archer":
            return "\n".join([*(instruction if self.at == "search" else []), *lines])
        flat = []
        for line in lines:
            head, bracket, tail = (
                line.partition(" [") if not line.startswith("[") else ("", "[", line[1:])
            )
            flat += [head] if head else []
            flat += (
                tail.rstrip("]")
                .replace("[[", "[")
                .replace("]]", "]")
                .replace("][[", "][")
                .split("][")
                if bracket
                else []
            )
        return " [SEP] ".join([*instruction, *(piece.strip("[]") for piece in flat)])

    def buttons(self) -> list[str]:
        return [
            b for line in self.lines() for b in re.findall(r"\[([^][]+)\]", line) if b != "Search"
        ]

    def do(self, text: str):
        """(answer, reward, terminated, truncated)"""
        self.count += 1
        late, verb, _, tail = self.count == self.env.horizon, *text.strip().partition("[")
        well_formed, argument = tail.endswith("]") and "\n" not in text.strip(), tail[:-1]
        if (
            well_formed
            and verb == "search"
            and argument.strip()
            and (self.at == "search" or self.form == "webshop")
        ):
            count, seed = self.env.catalogue_key
            self.at, self.results, self.sheet, self.item, self.picked, self.detail = (
                "results",
                product_index(seed, count).search(argument),
                1,
                None,
                {},
                "",
            )
            return self.text(), 0.0, False, late
        clicked = {b if self.form == "archer" else b.lower(): b for b in self.buttons()}
        name = (
            clicked.get(argument if self.form == "archer" else argument.lower())
            if well_formed and verb == "click"
            else None
        )
        if name is None:
            bad = "OK." if well_formed and verb == "think" else "Invalid action!"
            return (bad if self.form == "archer" else self.text()), 0.0, False, late
        if name == "Buy Now":
            assert self.item is not None
            score = restated_reward(self.item, self.picked, self.goal)
            return f"Your score (min 0.0, max 1.0): {score}", score, True, False
        return self.click(name), 0.0, False, late

    def click(self, name: str) -> str:
        if name == "Back to Search":
            self.at, self.picked = "search", {}
        elif name == "Next >":
            self.sheet += 1
        elif name == "< Prev" and self.at == "results":
            self.sheet -= 1
        elif name == "< Prev":
            self.at = {"item": "results", "detail": "item"}[self.at]
            self.picked = self.picked if self.at == "item" else {}
        elif name in self.by_link:
            self.at, self.item = "item", self.by_link[name]
        elif name in ("Description", "Features", "Reviews"):
            self.at, self.detail = "detail", name
        else:
            assert self.item is not None
            (option,) = (option for option, values in self.item.options.items() if name in values)
            self.picked[option] = name
            return f"You have clicked {name}." if self.form == "archer" else self.text()
        return self.text()


def any_text(dice: random.Random, twin: RestatedShop) -> str:
    buttons, words = twin.buttons(), twin.goal.instruction.split()
    good = (
        f"click[{dice.choice(buttons)}]"
        if buttons
        else f"search[{' '.join(dice.choices(words, k=3))}]"
    )
    if buttons and dice.random() < 0.8:
        good = f"click[{dice.choice([b for b in buttons if b != 'Buy Now'][1:] or buttons)}]"
    odd = [
        good.upper(),
        good + "\n",
        good.lower(),
        " " + good,
        good[:-1],
        good + "]",
        "click[]",
        "search[]",
        "search[ ]",
        "click[Search]",
        "buy[now]",
    ]
    odd += [
        "search[red]",
        "think[so]",
        "think[]",
        "click[Buy Now]",
        "click[buy now]",
        "click[[red]]",
        "",
        "click",
        "search[a\nb]",
        "click[\x00]",
        "[" * 9,
    ]
    return dice.choice(odd) if dice.random() < 0.3 else good


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"form": "webshop"},
        {"per_page": 10, "horizon": 25},
        {"first_page_only": True, "products": 40},
    ],
)
def test_thousands_of_steps_match_the_restated_pages(options):
    env, dice, ends = shop(**options), random.Random(4), set()
    for _ in range(120):
        (message,), _ = env.reset(seed=dice.randrange(10**6))
        twin, done = RestatedShop(env), False
        assert message.text == twin.text() + "\n"
        while not done:
            text = any_text(dice, twin)
            (message,), reward_, terminated, truncated, info = env.step(text)
            answer, score, over, late = twin.do(text)
            assert (message.text, terminated, truncated) == (
                answer + "\n",
                over,
                late,
            ) and reward_ == pytest.approx(score, abs=1e-12)
            done = terminated or truncated
        ends.add(terminated)
        assert info["success"] is (reward_ == 1)
    assert ends == {True, False}


@pytest.mark.parametrize("form", ["archer", "webshop"])
def test_the_buttons_shown_are_the_legal_clicks(form):
    env, dice = shop(form=form), random.Random(6)
    for seed in range(25):
        env.reset(seed=seed)
        for _ in range(6):
            labels = env.store.clickable(env.page)
            for label in [*labels, "Search", "Nothing", "B000000000"]:
                assert env.fork().step(f"click[{label}]")[-1]["legal"] is (label in labels)
            env.step(
                env.scripted_policies["expert"](env, np.random.default_rng(0))
                if dice.random() < 0.5
                else env.scripted_policies["random"](env, np.random.default_rng(seed))
            )
            if env._is_over:
                break


def test_a_purchase_by_hand():
    env = shop()
    env.reset(options={"goal": 7})
    target = env.goal
    steps = [
        env.step(text)
        for text in (f"search[{target.product.title}]", f"click[{target.product.asin}]")
    ]
    assert all(step[1:4] == (0.0, False, False) and step[-1]["legal"] for step in steps)
    (color, size) = target.options.items()
    assert texts(env.step(f"click[{color[1]}]")[0]) == [f"You have clicked {color[1]}.\n"]
    messages, score, terminated, truncated, info = env.step("click[Buy Now]")
    share = (len(target.attributes) + 2) / (len(target.attributes) + 3)
    assert score == pytest.approx(share) and (terminated, truncated, info["success"]) == (
        True,
        False,
        False,
    )
    assert (
        texts(messages) == [f"Your score (min 0.0, max 1.0): {score}\n"]
        and size[1] not in texts(messages)[0]
    )


def test_only_the_original_form_searches_from_every_page():
    for form, searched in (("archer", False), ("webshop", True)):
        env = shop(form=form)
        env.reset(seed=0)
        env.step("search[lip balm]")
        before = env.page
        assert (
            env.step("search[yoga mat]")[-1]["legal"] is searched
            and (env.page != before) is searched
        )


def test_the_expert_always_buys_the_target_and_the_random_policy_never():
    env = shop()
    wins = {
        player: [play_scripted_episode(env, player, seed).total_reward for seed in range(100)]
        for player in env.scripted_policies
    }
    assert (
        set(wins["expert"]) == {1.0}
        and np.mean(wins["random"]) < 0.2 < 0.6 < np.mean(wins["mixture"]) < 1
    )


def test_the_expert_buys_the_target_from_any_reached_page():
    env = shop(horizon=60)
    for seed in range(40):
        env.reset(seed=seed)
        rng, score, done = np.random.default_rng(seed), 0.0, False
        for _ in range(12):
            action = env.scripted_policies["random"](env, rng)
            if "Buy" not in str(action):
                env.step(action)
        while not done:
            _, score, terminated, truncated, _ = env.step(env.scripted_policies["expert"](env, rng))
            done = terminated or truncated
        assert score == 1


def test_goals_can_be_held_out():
    training, held_out = shop(goals_to=1500), shop(goals_from=1500)
    goal_indices: dict[str, set[int]] = {"training": set(), "held out": set()}
    for seed in range(300):
        training.reset(seed=seed)
        held_out.reset(seed=seed)
        goal_indices["training"].add(training.goal_index)
        goal_indices["held out"].add(held_out.goal_index)
    assert (
        max(goal_indices["training"]) < 1500 <= min(goal_indices["held out"])
        and min(len(d) for d in goal_indices.values()) > 150
    )


def test_a_pickled_environment_is_small():
    env = shop()
    env.reset(seed=0)
    env.step("search[pan]")
    assert len(pickle.dumps(env)) < 5000


@pytest.mark.parametrize(
    "options",
    [
        {"form": "html"},
        {"horizon": 0},
        {"products": 39},
        {"catalogue_seed": -1},
        {"goals_from": 2000},
        {"goals_to": 2001},
        {"goals_from": 5, "goals_to": 5},
        {"per_page": 0},
        {"first_page_only": 1},
    ],
)
def test_an_invalid_option_is_an_error(options):
    with pytest.raises(UserError, match=[*options][-1]):
        shop(**options)


@pytest.mark.parametrize("number", [-1, 2000, "1", None, True])
def test_an_invalid_goal_index_is_an_error(number):
    with pytest.raises(UserError, match="goal must be a whole number from 0 to 1999"):
        shop().reset(options={"goal": number})


def test_each_match_counts_once():
    assert (
        count_matched_attributes(product(), goal()),
        count_matched_options({"color": "red", "size": "large"}, goal()),
    ) == (2, 1)
