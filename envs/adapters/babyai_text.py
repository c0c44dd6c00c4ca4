"""BabyAI's levels: making them, and what the agent sees in AgentGym's sentences."""

import contextlib
import io
import re
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from agentrl_jax.envs.adapters.packages import import_package
from agentrl_jax.errors import UserError

# The texts of the package's actions, in the order of their numbers.
ACTIONS = ("turn left", "turn right", "move forward", "pick up", "drop", "toggle", "done")
_SHOWN = ("door", "key", "ball", "box", "goal", "lava")
_STDOUT_LOCK = threading.Lock()


def make_level(level: str) -> Any:
    """The package's environment of a level, such as GoToLocal.

    Raises:
        UserError: the package or the level is missing.
    """
    import_package("minigrid", "minigrid")
    levels = {}
    for name in gymnasium.registry:
        if match := re.fullmatch(r"BabyAI-(\w+)-v\d+", name):
            levels[match[1]] = name
    if level not in levels:
        raise UserError(f"BabyAI has no level {level!r}, only {', '.join(levels)}")
    return gymnasium.make(levels[level], disable_env_checker=True)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drop what the package prints while it draws a level."""
    with _STDOUT_LOCK, contextlib.redirect_stdout(io.StringIO()):
        yield


def description(env: Any, image: np.ndarray) -> str:
    """What the agent sees and carries, by distance.

    Args:
        env: the package's environment, unwrapped.
        image: its observation: for each cell [i, j] of the view the numbers of its object, color
            and state; the agent stands in the middle of the last row.
    """
    objects = import_package("minigrid.core.constants", "minigrid")
    states = {number: name for name, number in objects.STATE_TO_IDX.items()}
    size = image.shape[0]
    cells = []  # (steps ahead, steps to the right, object, name)
    for j in range(size):
        for i in range(size):
            kind = objects.IDX_TO_OBJECT[int(image[i, j, 0])]
            ahead, right = size - 1 - j, i - size // 2
            if (ahead or right) and kind in (*_SHOWN, "wall"):
                color = objects.IDX_TO_COLOR[int(image[i, j, 1])]
                state = f" {states[int(image[i, j, 2])]}" if kind == "door" else ""
                cells.append((ahead, right, kind, f"{color}{state} {kind}"))
    # By distance, those further ahead first, from left to right.
    cells.sort(key=lambda cell: (cell[0] + abs(cell[1]), -cell[0], cell[1]))
    carried = env.carrying
    load = f"a {carried.color} {carried.type}" if carried is not None else "not carrying anything"
    load = f"carrying {load}" if carried is not None else load
    barriers = [(ahead, kind) for ahead, right, kind, _ in cells if not right]
    facing = [f"You are facing a {kind} {n} steps away." for n, kind in barriers if kind in _SOLID]
    sentences = [_objects(cells), "The room has walls around you.", *facing[:1], f"You are {load}."]
    return " ".join(sentences)


_SOLID = ("box", "wall")


def _objects(cells: list[tuple[int, int, str, str]]) -> str:
    if not cells:
        return "You cannot see any objects within sight."
    text, numbers = "In front of you in this room, you can see several objects:", dict[str, int]()
    for ahead, right, kind, name in cells:
        if kind == "wall":
            continue
        numbers[name] = numbers.get(name, 0) + 1
        side = "right" if right > 0 else "left"
        where = f"{ahead} steps in front of you and {abs(right)} steps to your {side}."
        if not right:
            where = f"right in front of you {ahead} steps away."
        text += f" There is a {name} {numbers[name]} {where}"
    return text
