"""TextCraft: generated recipes, shortest plans and the grammar of actions."""

from collections import deque

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.textcraft.recipes import Recipe, RecipeBook, generated_book
from agentrl_jax.envs.textcraft.textcraft import TextCraft
from agentrl_jax.errors import UserError

BOOK = RecipeBook(
    "iron gate",
    {
        recipe.output: recipe
        for recipe in (
            Recipe((("oak rod", 3), ("string", 1)), "iron gate", 1),
            Recipe((("oak plank", 1), ("string", 2)), "oak rod", 2),
            Recipe((("oak log", 1),), "oak plank", 4),
            Recipe((("oak log", 1), ("string", 1)), "oak bowl", 1),
        )
    },
)


def environment(**options) -> TextCraft:
    env = make("agentrl/TextCraft-v0", options)
    assert isinstance(env, TextCraft)
    return env


def crafts_by_search(book: RecipeBook) -> int:
    """The fewest crafts that make the goal, by breadth-first search; raw items cost nothing."""
    names = sorted(book.recipes)
    queue, seen = deque([((0,) * len(names), 0)]), set()
    while queue:
        stock, count = queue.popleft()
        if stock[names.index(book.goal)]:
            return count
        if stock in seen:
            continue
        seen.add(stock)
        for recipe in book.recipes.values():
            after = dict(zip(names, stock))
            for item, number in recipe.inputs:
                if item in after:
                    after[item] -= number
            if min(after.values()) >= 0:
                after[recipe.output] = min(after[recipe.output] + recipe.count, 12)
                queue.append((tuple(after.values()), count + 1))
    raise AssertionError("the goal cannot be crafted")


def test_the_plan_of_a_book_worked_out_by_hand():
    # 3 rods: 2 crafts of 2, with 2 planks (1 craft of 4) and 4 strings; 1 more string for the gate.
    plan = BOOK.plan({})
    assert sorted(plan[:2]) == ["get 1 oak log", "get 5 string"]
    assert plan[2:] == [
        "craft 4 oak plank using 1 oak log",
        "craft 2 oak rod using 1 oak plank, 2 string",
        "craft 2 oak rod using 1 oak plank, 2 string",
        "craft 1 iron gate using 3 oak rod, 1 string",
    ]
    assert BOOK.plan({"oak rod": 3, "string": 4}) == [plan[-1]]
    assert BOOK.plan({"oak rod": 2, "oak plank": 9}) == ["get 3 string", plan[3], plan[5]]
    assert [BOOK.depth(x) for x in ("string", "oak plank", "oak rod", "iron gate")] == [0, 1, 2, 3]


def test_plans_have_as_few_crafts_as_a_search_finds():
    counts = set()
    for seed in range(60):
        book = generated_book(np.random.default_rng(seed), 1 + seed % 3, 0, 9)
        assert book is not None
        plan = book.plan({})
        crafts = [action for action in plan if action.startswith("craft")]
        taken = [action.split(maxsplit=2)[2] for action in plan if action.startswith("get")]
        assert len(crafts) == crafts_by_search(book) and len(set(taken)) == len(taken)
        counts.add(len(crafts))
    assert len(counts) > 3


@pytest.mark.parametrize("depth", range(1, 7))
def test_a_book_has_the_depth_and_the_expert_crafts_its_goal(depth: int):
    env = environment(depth=depth, horizon=40, distractors=5)
    for seed in range(20):
        env.reset(seed=seed)
        book = env.book
        assert book.depth(book.goal) == depth
        needed = RecipeBook(book.goal, book.recipes)._parts(book.goal) & book.recipes.keys()
        assert len(book.recipes) == len(needed) + 5
        length, rewards, is_over = len(book.plan({})), [], False
        while not is_over:
            action = env.scripted_policies["expert"](env, np.random.default_rng(0))
            _, reward, is_over, truncated, info = env.step(action)
            rewards.append(reward)
            assert info["legal"] and not truncated
        assert info["success"] and len(rewards) == length and sum(rewards) == 1


def test_the_expert_goes_on_from_any_inventory():
    env = environment(depth=3, horizon=60)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        env.reset(seed=seed)
        for _ in range(15):
            if not env._is_over:
                env.step(env.scripted_policies["random"](env, rng))
        left = len(env.book.plan(env.inventory)) if not env._is_over else 0
        for _ in range(left):
            *_, info = env.step(env.scripted_policies["expert"](env, rng))
        assert env._is_over and (not left or info["success"])


def test_items_are_neither_lost_nor_made_of_nothing():
    env = environment(depth=3, horizon=50)
    for seed in range(20):
        rng, taken = np.random.default_rng(seed), dict[str, int]()
        env.reset(seed=seed)
        while not env._is_over:
            action = str(env.scripted_policies["random"](env, rng))
            before = dict(env.inventory)
            env.step(action)
            changes = {x: env.inventory.get(x, 0) - before.get(x, 0) for x in env.book.items()}
            if action.startswith("get"):
                _, count, item = action.split(maxsplit=2)
                taken = {item: int(count)}
            elif action.startswith("craft"):
                recipe = next(r for r in env.book.recipes.values() if r.text == action)
                taken = {**{x: -n for x, n in recipe.inputs}, recipe.output: recipe.count}
            else:
                taken = {}
            assert {x: n for x, n in changes.items() if n} == taken
            assert all(count > 0 for count in env.inventory.values())


def test_splits_are_ranges_of_tasks_and_a_smaller_number_repeats():
    def opening(seed: int, **options) -> str:
        return environment(**options).reset(seed=seed)[0][0].text

    assert opening(7, tasks=5) == opening(2, tasks=5) == opening(2)
    assert opening(2, tasks=5, first=100) == opening(102)
    train = {opening(seed, tasks=200) for seed in range(200)}
    test = {opening(seed, tasks=50, first=200) for seed in range(50)}
    assert len(train) == 200 and len(test) == 50 and not train & test


def test_the_plan_fits_the_horizon_or_the_reset_says_so():
    env = environment(depth=4, horizon=12)
    for seed in range(10):
        env.reset(seed=seed)
        assert len(env.book.plan({})) <= 12
    with pytest.raises(UserError, match=r"no goal of depth 6 .* in 3 turns"):
        environment(depth=6, horizon=3).reset(seed=0)


@pytest.mark.parametrize(
    "options", [{"depth": 0}, {"depth": 7}, {"distractors": -1}, {"tasks": 0}, {"horizon": 1.5}]
)
def test_wrong_options_are_errors(options: dict):
    with pytest.raises(UserError, match=next(iter(options))):
        environment(**options)
