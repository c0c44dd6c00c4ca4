"""`TextCraft`: craft a goal by recipes that build on each other (ADaPT, arXiv 2311.05772)."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from agentrl_jax.environment import ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.sampled_task import SampledTaskEnvironment, StepResult
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.textcraft.recipes import Recipe, RecipeBook, generated_book
from agentrl_jax.errors import UserError

_CRAFT = re.compile(r"craft (.*) using (.*)")
_GET = re.compile(r"get ([0-9]{1,9}) (.*)")
_COUNTED = re.compile(r"([0-9]{1,9}) (.*)")


def _random_action(env: "TextCraft", rng: np.random.Generator) -> str:
    """Takes a raw item, crafts what can be crafted or looks into the inventory."""
    raw = sorted(env.book.items() - env.book.recipes.keys())
    possible = [recipe.text for recipe in env.book.recipes.values() if env.has(recipe.inputs)]
    kind = rng.integers(5)
    if kind == 0:
        return "inventory"
    if kind < 3 and possible:
        return possible[int(rng.integers(len(possible)))]
    return f"get {rng.integers(1, 4)} {raw[int(rng.integers(len(raw)))]}"


def _expert_action(env: "TextCraft", rng: np.random.Generator) -> str:
    """The first action of the shortest plan from the present inventory."""
    return env.book.plan(env.inventory)[0]


class TextCraft(SampledTaskEnvironment):
    """The opening lists recipes and names the goal. `craft 1 oak rod using 2 oak plank` makes
    something by one of the recipes, `get 2 oak log` takes what has no recipe, and `inventory`
    shows what is there. The grammar and the answers are those of AgentGym's TextCraft; its
    recipes are Minecraft's, and these are generated. Crafting the goal ends the episode with the
    reward 1.

    An episode is one of `tasks`, counted from `first`: the seed modulo `tasks`. Two splits are two
    ranges.

    Scripted policies: `random`, `expert` (the shortest plan) and `mixture` (the expert with
    probability 0.8).

    Args:
        depth: of the goal: 1 where it is made of raw items alone.
        distractors: recipes that the goal does not need.
        tasks: how many different tasks there are.
        first: the index of the first one.
        horizon: turns before truncation, and the longest plan of a task.

    Raises:
        UserError: an option is wrong; from `reset`: no tree of this depth is crafted in so few
            turns.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.8),
            "expert": _expert_action,
        }
    )

    def __init__(
        self,
        depth: int = 2,
        distractors: int = 4,
        tasks: int = 10**6,
        first: int = 0,
        horizon: int = 20,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self.depth = checked_int("depth", depth, 1, 6)
        self.distractors = checked_int("distractors", distractors, 0, 20)
        self.tasks = checked_int("tasks", tasks, 1, 10**9)
        self.first = checked_int("first", first, 0, 10**9)
        self.horizon = checked_int("horizon", horizon, 2, 10**4)
        self.rules = (
            "Craft the goal by the recipes that are shown, one action a turn: craft 1 oak rod "
            "using 2 oak plank; get 2 oak log, of what has no recipe; inventory."
        )
        self.book = RecipeBook("", {})
        self.inventory: Mapping[str, int] = {}

    def _sample_task(self) -> None:
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        index = self.first + seed % self.tasks
        rng = np.random.default_rng([index, self.depth])
        book = generated_book(rng, self.depth, self.distractors, self.horizon)
        if book is None:
            raise UserError(
                f"no goal of depth {self.depth} was found that is crafted in {self.horizon} turns: "
                "a greater horizon is needed"
            )
        self.book = book

    def _reset_state(self) -> None:
        self.inventory = {}

    def _opening_text(self) -> str:
        recipes = "\n".join(recipe.text for recipe in self.book.recipes.values())
        return f"Crafting commands:\n{recipes}\n\nGoal: craft {self.book.goal}."

    def has(self, inputs: tuple[tuple[str, int], ...]) -> bool:
        """Whether the inventory holds all of these, each by itself."""
        return all(self.inventory.get(item, -1) >= count for item, count in inputs)

    def _respond(self, text: str) -> StepResult:
        if craft := _CRAFT.match(text):
            return self._crafted(craft[1], craft[2])
        if get := _GET.match(text):
            return self._taken(int(get[1]), get[2])
        if text.startswith("inventory"):
            listed = "".join(f"[{item}] ({count}) " for item, count in self.inventory.items())
            return _result(f"Inventory: {listed or 'You are not carrying anything.'}")
        return _result(f"Could not execute {text[:200]}", is_legal=False)

    def _taken(self, count: int, item: str) -> StepResult:
        if item in self.book.recipes or item not in self.book.items():
            return _result(f"Could not find {item[:200]}", is_legal=False)
        self._add(item, count)
        return _result(f"Got {count} {item}")

    def _crafted(self, output: str, ingredients: str) -> StepResult:
        counted = _COUNTED.match(output)
        item = counted[2] if counted else output
        inputs: list[tuple[str, int]] = []
        for part in ingredients.split(","):
            if not (match := _COUNTED.match(part.strip())):
                return _result(f"Wrong item format: {part.strip()[:200]}", is_legal=False)
            inputs.append((match[2], int(match[1])))
        name = f"minecraft:{item.replace(' ', '_')}"[:200]
        if not self.has(tuple(inputs)):
            return _result(f"Could not find enough items to craft {name}", is_legal=False)
        recipe = self.book.recipes.get(item)
        if recipe is None or sorted(recipe.inputs) != sorted(inputs):
            return _result(f"Could not find a valid recipe for {name}", is_legal=False)
        return self._apply(recipe, name)

    def _apply(self, recipe: Recipe, name: str) -> StepResult:
        for item, count in recipe.inputs:
            self._add(item, -count)
        self._add(recipe.output, recipe.count)
        is_goal = recipe.output == self.book.goal
        return _result(f"Crafted {recipe.count} {name}", float(is_goal), is_goal or None)

    def _add(self, item: str, count: int) -> None:
        inventory = {**self.inventory, item: self.inventory.get(item, 0) + count}
        if count < 0 and not inventory[item]:  # "get 0 string" leaves an entry, as AgentGym's does
            del inventory[item]
        self.inventory = inventory


def _result(
    text: str, reward: float = 0.0, success: bool | None = None, is_legal: bool = True
) -> StepResult:
    return StepResult(text, {"task": reward}, {"legal": is_legal}, success)
