"""Recipes generated as a tree, and the shortest plan of crafting its root."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RAW = (
    "oak log", "birch log", "iron ingot", "gold ingot", "copper ingot", "string", "leather",
    "feather", "flint", "clay ball", "sand", "gravel", "redstone", "coal", "paper", "bone",
    "honeycomb", "slime ball", "quartz", "amethyst shard", "kelp", "sugar cane", "wheat", "ink sac",
)  # fmt: skip
_MATERIALS = ("oak", "birch", "iron", "golden", "copper", "stone", "glass", "woven")
_FORMS = (
    "plank", "rod", "plate", "frame", "chest", "lantern", "ladder", "pickaxe", "shield", "bowl",
    "gate", "banner",
)  # fmt: skip
CRAFTED = tuple(f"{material} {form}" for material in _MATERIALS for form in _FORMS)
_MAX_BOOKS = 200  # drawn where a plan is too long


@dataclass(frozen=True)
class Recipe:
    """What is taken and what is made of it."""

    inputs: tuple[tuple[str, int], ...]
    output: str
    count: int

    @property
    def text(self) -> str:
        """The action: "craft 2 oak plank using 1 oak log, 3 string"."""
        inputs = ", ".join(f"{count} {item}" for item, count in self.inputs)
        return f"craft {self.count} {self.output} using {inputs}"


@dataclass(frozen=True)
class RecipeBook:
    """A goal and its recipes, one for each item that is crafted, among others."""

    goal: str
    recipes: Mapping[str, Recipe]  # by the item that is made, in the order in which they are shown

    def items(self) -> frozenset[str]:
        """Everything that occurs in a recipe."""
        used = {item for recipe in self.recipes.values() for item, _ in recipe.inputs}
        return frozenset(used | self.recipes.keys())

    def depth(self, item: str) -> int:
        """0 of a raw item, else 1 more than the deepest of what it is made of."""
        if item not in self.recipes:
            return 0
        return 1 + max(self.depth(part) for part, _ in self.recipes[item].inputs)

    def plan(self, inventory: Mapping[str, int]) -> list[str]:
        """The shortest list of actions that crafts the goal.

        An item with one recipe of count c, of which n are missing, is crafted ceil(n / c) times,
        and a raw item is taken once. Items are settled before what they are made of.

        Args:
            inventory: what is there already.
        """
        missing, actions = {self.goal: 1}, list[str]()
        for item in sorted(self._parts(self.goal), key=self.depth, reverse=True):
            lack = missing.get(item, 0) - (inventory.get(item, 0) if item != self.goal else 0)
            if lack <= 0:
                continue
            if item not in self.recipes:
                actions.append(f"get {lack} {item}")
                continue
            recipe = self.recipes[item]
            times = math.ceil(lack / recipe.count)
            actions += [recipe.text] * times
            for part, count in recipe.inputs:
                missing[part] = missing.get(part, 0) + times * count
        return actions[::-1]

    def _parts(self, item: str) -> set[str]:
        """The item and everything that it is made of."""
        inputs = self.recipes[item].inputs if item in self.recipes else ()
        return {item}.union(*(self._parts(part) for part, _ in inputs))


def generated_book(
    rng: np.random.Generator, depth: int, distractors: int, longest: int
) -> RecipeBook | None:
    """A book whose goal has exactly this depth and can be crafted in at most `longest` actions;
    None where many draws gave none.

    Args:
        rng: determines the book.
        depth: of the goal.
        distractors: recipes that the goal does not need.
        longest: actions of the shortest plan.
    """
    for _ in range(_MAX_BOOKS):
        names, raw = list(rng.permutation(CRAFTED)), list(rng.permutation(RAW)[:8])
        recipes: dict[str, Recipe] = {}
        goal = _added(rng, depth, names, raw, recipes)
        if len(RecipeBook(goal, recipes).plan({})) <= longest:
            return RecipeBook(goal, _shuffled(rng, recipes, names, raw, distractors, goal))
    return None


def _added(
    rng: np.random.Generator,
    depth: int,
    names: list[str],
    raw: Sequence[str],
    recipes: dict[str, Recipe],
) -> str:
    """The name of a new item of this depth, whose recipe and those of its parts are added."""
    if depth == 0:
        return str(rng.choice(raw))
    name = str(names.pop())
    depths = [depth - 1, *rng.integers(depth, size=int(rng.integers(3)))]
    parts = dict.fromkeys(_added(rng, int(level), names, raw, recipes) for level in depths)
    recipes[name] = _recipe(rng, list(parts), name)
    return name


def _recipe(rng: np.random.Generator, parts: Sequence[str], name: str) -> Recipe:
    inputs = tuple((part, int(rng.integers(1, 4))) for part in parts)
    return Recipe(inputs, name, int(rng.choice([1, 1, 2, 4])))


def _shuffled(
    rng: np.random.Generator,
    recipes: Mapping[str, Recipe],
    names: list[str],
    raw: Sequence[str],
    distractors: int,
    goal: str,
) -> dict[str, Recipe]:
    """The recipes and those that use the same items for something else, in a random order."""
    items = [*raw, *(name for name in recipes if name != goal)]
    others = [
        _recipe(rng, [str(item) for item in rng.choice(items, size=2, replace=False)], names.pop())
        for _ in range(min(distractors, len(names)))
    ]
    listed = [*recipes.values(), *others]
    return {str(listed[i].output): listed[i] for i in rng.permutation(len(listed))}
