"""`Maze`: walk through the double T maze to the goal (LMRL-Gym, arXiv 2311.18232)."""

from collections import deque
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.context import LastMessages
from agentrl_jax.environment import Environment, Messages, ScriptedPolicy
from agentrl_jax.envs.forkable import Forkable
from agentrl_jax.envs.grid import Cell, neighbor
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.errors import UserError
from agentrl_jax.messages import user

MAZE_MAP = (
    "#############",
    "#.....#.....#",
    "###.#####.###",
    "###.#####.###",
    "###.#####.###",
    "###.......###",
    "######.######",
    "######.######",
    "######.######",
    "#############",
)
FREE_CELLS = tuple(
    (row, column)
    for row, line in enumerate(MAZE_MAP)
    for column, mark in enumerate(line)
    if mark == "."
)
GOAL = (8, 6)
HORIZON = 100  # steps before the goal; the next one fails
MOVES: Mapping[str, Cell] = MappingProxyType(
    {"move left": (0, -1), "move right": (0, 1), "move up": (-1, 0), "move down": (1, 0)}
)
WALL_SIDES = (
    ("to your right", (0, 1)),
    ("to your left", (0, -1)),
    ("above you", (-1, 0)),
    ("below you", (1, 0)),
)

# Options of a registered id are plain data (flags, run files), so these choices are names.
VIEWS = ("position", "goal", "walls")
# Rewards at the goal, after a text that is no move, and after any other step.
REWARDS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "standard": (0.0, -4.0, -1.0),
        "illegal_penalty": (1.0, -1.0, 0.0),
        "illegal_penalty_diff_scale": (1.0, -100.0, -1.0),
    }
)
FAILURE_REWARD = -1.0
ANCHORS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {"position": (-101.0, -83.0, -6.84), "walls": (-101.0, -83.0, -25.75)}
)


@cache
def walls_text(cell: Cell) -> str:
    """The sentence about adjacent walls: "There are walls above you, below you."."""
    sides = [name for name, direction in WALL_SIDES if neighbor(cell, direction) not in FREE_CELLS]
    if not sides:
        return "There are no walls near you."
    return (
        f"There is a wall {sides[0]}."
        if len(sides) == 1
        else f"There are walls {', '.join(sides)}."
    )


def digits_text(cell: Cell) -> str:
    """A cell spelled digit by digit: (1, 10) reads "1, 1 0"."""
    return ", ".join(" ".join(str(number)) for number in cell)


@cache
def shortest_moves(goal: Cell) -> Mapping[Cell, tuple[int, str]]:
    """For every free cell but the goal: the distance to it, and the first move.

    Ties go to the order of `MOVES`.
    """
    routes: dict[Cell, tuple[int, str]] = {}
    frontier = deque([(goal, 0)])
    while frontier:
        cell, distance = frontier.popleft()
        for name, (down, right) in MOVES.items():
            origin = neighbor(cell, (-down, -right))
            if origin in FREE_CELLS and origin != goal and origin not in routes:
                routes[origin] = (distance + 1, name)
                frontier.append((origin, distance + 1))
    return MappingProxyType(routes)


def _random_action(env: Environment, rng: np.random.Generator) -> str:
    """A uniform move."""
    return tuple(MOVES)[rng.integers(len(MOVES))]


def _expert_action(env: "Maze", rng: np.random.Generator) -> str:
    """A shortest path; it reads the position, also where the observation hides it."""
    return shortest_moves(env.goal)[env.position][1]


# Stands for LMRL-Gym's data policy, which is not published. Its mean return over the start cells is
# the middle anchor, -83.
DATA_POLICY = MixturePolicy(_expert_action, _random_action, 0.017)


class Maze(Forkable):
    """Walk from a random free cell to the goal of the double T maze.

    The actions are "move left", "move right", "move up" and "move down", with one optional final
    "\\n"; any other text is illegal and moves nothing. "Success\\n" ends the episode. After 100
    steps without it, the next step ignores its action and is answered by "Failure\\n" with reward
    -1: a time limit, so the episode is truncated, not terminated. `info["legal"]` is whether the
    text was a move. After an illegal one `info["forget"]` is True and the default context (the last
    message with view "position", else the last 40) starts afresh.

    Scripted policies: `random` (uniform moves), `expert` (a shortest path; reads the position) and
    `mixture` (rarely the expert, at LMRL-Gym's mean return). Reset options: `goal` and
    `init_position`, free cells as (row, column).

    Args:
        view: what an observation tells: "position" (fully observed: goal, position, walls), "goal"
            (goal and walls) or "walls" (partially observed).
        reward: the name of a reward function: "standard" is 0 at the goal, -4 after illegal text,
            else -1; see `REWARDS`.

    Raises:
        UserError: an option is unknown or out of range.
    """

    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {"random": _random_action, "mixture": DATA_POLICY, "expert": _expert_action}
    )

    def __init__(
        self, view: str = "position", reward: str = "standard", render_mode: str | None = None
    ) -> None:
        super().__init__(render_mode)
        if view not in VIEWS or reward not in REWARDS:
            raise UserError(
                f"view must be one of {', '.join(VIEWS)} and reward one of {', '.join(REWARDS)}, "
                f"not {view!r} and {reward!r}"
            )
        self.view, self.reward = view, reward
        self.context = LastMessages(1 if view == "position" else 40)
        self.reward_bounds = (min(*REWARDS[reward], FAILURE_REWARD), max(REWARDS[reward]))
        self.score_anchors = ANCHORS.get(view) if reward == "standard" else None
        shown_positions = {
            "position": "where the goal and you are (row, column) and which",
            "goal": "where the goal is (row, column) and which",
        }
        self.rules = (
            f"Walk through the maze to the goal within {HORIZON} moves, in as few as you can.\n"
            f"Write one of: {', '.join(MOVES)}. You are told "
            f"{shown_positions.get(view, 'only which')} walls are next to you.\n"
            "A move into a wall leaves you where you are; any other text is a costly mistake."
        )
        self.goal: Cell = GOAL
        self.start: Cell = FREE_CELLS[0]
        self.position: Cell = FREE_CELLS[0]
        self.steps = 0

    def actions(self) -> tuple[str, ...]:
        return tuple(MOVES)

    def _free_cell(self, options: dict[str, Any], name: str) -> Cell:
        try:
            row, column = options[name]
        except (TypeError, ValueError):
            row, column = -1, -1
        if (row, column) not in FREE_CELLS:
            raise UserError(
                f"{name} must be a free cell (row, column) of the maze, not {options[name]!r}"
            )
        return int(row), int(column)

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        if unknown := options.keys() - {"goal", "init_position"}:
            raise UserError(
                f"Maze has no reset option {sorted(unknown)}; it has: goal, init_position"
            )
        goal = self._free_cell(options, "goal") if "goal" in options else GOAL
        if "init_position" in options:
            start = self._free_cell(options, "init_position")
            if start == goal:
                raise UserError(f"init_position must differ from the goal, {goal}")
        else:
            starts = [cell for cell in FREE_CELLS if cell != goal]
            start = starts[self.np_random.integers(len(starts))]
        self.goal, self.start = goal, start
        self._rewind()
        return self._observation(), {}

    def _rewind(self) -> None:
        self.position, self.steps = self.start, 0

    def _observation(self) -> Messages:
        sentences = [walls_text(self.position)]
        if self.view == "position":
            sentences.insert(
                0, f"Your current position is at position {digits_text(self.position)}."
            )
        if self.view != "walls":
            sentences.insert(0, f"The goal is at position {digits_text(self.goal)}.")
        return (user(" ".join(sentences) + "\n"),)

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        move = MOVES.get(text.removesuffix("\n"))
        info: dict[str, Any] = {"legal": move is not None}
        if self.steps == HORIZON:
            return (user("Failure\n"),), FAILURE_REWARD, False, True, {**info, "success": False}
        if move is not None and neighbor(self.position, move) in FREE_CELLS:
            self.position = neighbor(self.position, move)
        at_goal, illegal, otherwise = REWARDS[self.reward]
        if self.position == self.goal:
            return (user("Success\n"),), at_goal, True, False, {**info, "success": True}
        self.steps += 1
        if move is None:
            return self._observation(), illegal, False, False, {**info, "forget": True}
        return self._observation(), otherwise, False, False, info
