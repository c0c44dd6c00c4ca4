"""`GridGrounding`: one action of a mouse on the object that an instruction names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply, look
from agentrl_jax.envs.vision.images import COLORS, SHAPES, Image, blank, paint, shape_mask
from agentrl_jax.envs.vision.splits import Generators, TaskKey
from agentrl_jax.messages import Message, user
from agentrl_jax.tool_environment import tool_action
from agentrl_jax.tools import Tool

CELL, _OBJECT = 36, 24  # sides of a cell of the grid and of the object in it, in pixels
GROUNDING_TASKS = Generators(
    {
        "click": ("Click the {a}.", "Click on the {a}.", "Select the {a} with a click."),
        "double": (
            "Double-click the {a}.",
            "Open the {a} with a double click.",
            "Click twice on the {a}.",
        ),
        "right": (
            "Right-click the {a}.",
            "Open the menu of the {a} with the right button.",
            "Click the {a} with the right button.",
        ),
        "cell": (
            "Click the object in row {row}, column {column}.",
            "Click what is in column {column} of row {row}.",
            "In row {row}, click the object of column {column}.",
        ),
        "drag": ("", "Drag the {a} onto the {b}."),
        "neighbor": ("", "Click the object to the right of the {a}."),
    },
    held_out=("drag", "neighbor"),
)
INSTRUCTION = (
    "Act once: click(point), left_double(point), right_single(point) or drag(start_point, "
    "end_point), in pixels of the image."
)


@dataclass(frozen=True)
class Grid:
    """Objects of different names in the cells of a grid, row by row; "": the cell is empty."""

    columns: int
    names: tuple[str, ...]

    def box(self, index: int) -> boxes.Box:
        """Where the object of a cell is."""
        margin = (CELL - _OBJECT) / 2
        x, y = index % self.columns * CELL + margin, index // self.columns * CELL + margin
        return x, y, x + _OBJECT, y + _OBJECT


@dataclass(frozen=True)
class Goal:
    """An instruction, the action that fulfills it and the cells that it concerns."""

    text: str
    action: str
    cells: tuple[int, ...]


@lru_cache(1024)
def make_grid(seed: int, columns: int, rows: int) -> Grid:
    """The grid of a seed; three of four cells hold an object, at most 24, so that two stand
    side by side in some row of four to six."""
    rng = np.random.default_rng(seed)
    count = min(len(COLORS) * len(SHAPES), columns * rows * 3 // 4)
    names = [f"{color} {shape}" for color in COLORS for shape in SHAPES]
    chosen = rng.choice(len(names), count, replace=False)
    cells = [""] * (columns * rows)
    for cell, i in zip(rng.choice(len(cells), count, replace=False), chosen):
        cells[cell] = names[i]
    return Grid(columns, tuple(cells))


@lru_cache(16)
def render_grid(grid: Grid) -> Image:
    """The pixels of a grid; they must not be changed."""
    rows = len(grid.names) // grid.columns
    image = blank(grid.columns * CELL, rows * CELL, (240, 240, 240))
    for index, name in enumerate(grid.names):
        if name:
            color, shape = name.split()
            x, y = (int(value) for value in grid.box(index)[:2])
            paint(image, x, y, shape_mask(shape, _OBJECT), COLORS[color])
    image.setflags(write=False)
    return image


def set_goal(task: TaskKey, grid: Grid) -> Goal:
    """The goal of a task."""
    rng = np.random.default_rng([task.seed, 1])
    taken = [i for i, name in enumerate(grid.names) if name]
    a, b = (taken[int(i)] for i in rng.permutation(len(taken))[:2])
    cells: tuple[int, ...] = (a,)
    action = {"double": "left_double", "right": "right_single", "drag": "drag"}
    if task.generator == "drag":
        cells = (a, b)
    if task.generator == "neighbor":
        pairs = [i for i in taken if (i + 1) % grid.columns and i + 1 in taken]
        a = pairs[int(rng.integers(len(pairs)))]
        cells = (a + 1,)
    row, column = divmod(a, grid.columns)
    text = task.phrasing.format(a=grid.names[a], b=grid.names[b], row=row + 1, column=column + 1)
    return Goal(text, action.get(task.generator, "click"), cells)


def _act(env: "GridGrounding", thought: str, action: str, points: Sequence[boxes.Point]) -> Message:
    pixels = [[round(x), round(y)] for x, y in points]
    if action == "drag":
        call = tool_action("drag", start_point=pixels[0], end_point=pixels[-1])
    else:
        call = tool_action(action, point=pixels[0])
    return call.replace(content=f"Thought: {thought}")


def _expert_action(env: "GridGrounding", rng: np.random.Generator) -> Message:
    """Does what the instruction says."""
    names = " and the ".join(env.grid.names[cell] for cell in env.goal.cells)
    centers = [boxes.center(env.grid.box(cell)) for cell in env.goal.cells]
    return _act(env, f"I see the {names}.", env.goal.action, centers)


def _random_action(env: "GridGrounding", rng: np.random.Generator) -> Message:
    """A uniform action at a uniform point."""
    height, width = render_grid(env.grid).shape[:2]
    action = ("click", "left_double", "right_single")[int(rng.integers(3))]
    return _act(env, "I try it.", action, [tuple(rng.integers((width, height)).tolist())])


class GridGrounding(ImageEnvironment):
    """A mouse action on a grid of objects, in UI-TARS' calls (`UITarsToolFormat`).

    The first call that can be run ends the episode: the reward is 1 where it is the right action
    with its points within the right objects, else 0. A call that cannot be run, such as one with a
    point outside of the image, is answered by what is wrong. `info` holds `point`, `box`, where
    that should have been, `formatted`, `void` and `stopped`.

    Scripted policies: `random`, `expert`, and `mixture`, the expert with probability .85.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: of instructions; empty: all of the split.
        columns: of the grid.
        rows: of the grid.
        horizon: turns before truncation.
        instruction: whether the opening lists the actions.
    """

    generators = GROUNDING_TASKS
    reward_bounds = (0.0, 1.0)
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.85),
        }
    )

    def __init__(
        self,
        split: str = "train",
        kinds: Sequence[str] = (),
        columns: int = 6,
        rows: int = 4,
        horizon: int = 2,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(split, kinds, horizon, instruction, render_mode)
        self.columns = checked_int("columns", columns, 4, 6)
        self.rows = checked_int("rows", rows, 3, 7)
        self.rules = f"Do what the instruction says to a grid of objects. {INSTRUCTION}"
        self.grid, self.goal = Grid(1, ()), Goal("", "", ())
        self._rewind()

    def _open(self) -> None:
        self.grid = make_grid(self.task.seed, self.columns, self.rows)
        self.goal = set_goal(self.task, self.grid)

    def _rewind(self) -> None:
        self.done: tuple[str, tuple[boxes.Point, ...]] | None = None  # the action that was run

    def _opening_messages(self) -> Messages:
        instruction = f" {INSTRUCTION}" if self.instruction else ""
        return (look(f"{self.goal.text}{instruction}", render_grid(self.grid)),)

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        return self.click, self.left_double, self.right_single, self.drag

    def click(self, point: list[float]) -> str:
        """Click a point.

        Args:
            point: [x, y] in pixels
        """
        return self._do("click", point)

    def left_double(self, point: list[float]) -> str:
        """Double-click a point.

        Args:
            point: [x, y] in pixels
        """
        return self._do("left_double", point)

    def right_single(self, point: list[float]) -> str:
        """Click a point with the right button.

        Args:
            point: [x, y] in pixels
        """
        return self._do("right_single", point)

    def drag(self, start_point: list[float], end_point: list[float]) -> str:
        """Drag from a point to another.

        Args:
            start_point: [x, y] in pixels
            end_point: [x, y] in pixels
        """
        return self._do("drag", start_point, end_point)

    def _do(self, action: str, *points: object) -> str:
        height, width = render_grid(self.grid).shape[:2]
        checked = tuple(boxes.checked_point(point, width, height) for point in points)
        self.done = (action, checked)
        return "Done."

    def _respond(self, message: Message) -> Reply:
        if not message.tool_calls:
            info = {"formatted": False, "void": True}
            return Reply((user(f"Invalid action. {INSTRUCTION}"),), info=info)
        observation, info = self._run_calls(message)
        if self.done is None:
            return Reply(observation, info=info)
        action, points = self.done
        targets = [self.grid.box(cell) for cell in self.goal.cells]
        right = (
            action == self.goal.action
            and len(points) == len(targets)
            and all(boxes.contains(box, point) for box, point in zip(targets, points))
        )
        info |= {"point": list(points[0]), "box": list(targets[0]), "stopped": True}
        return Reply(observation, right, {"outcome": float(right)}, info)
