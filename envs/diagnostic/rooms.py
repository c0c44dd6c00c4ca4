"""The grid of `KeyDoor`: two rooms, a key, a door and an exit."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from agentrl_jax.envs.grid import Cell, neighbor

MOVES: Mapping[str, Cell] = MappingProxyType(
    {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
)
ACTIONS = (*MOVES, "take", "open")


class GridState(NamedTuple):
    cell: Cell
    has_key: bool = False  # taken
    door_open: bool = False


@dataclass(frozen=True)
class RoomLayout:
    """The column of the door is a wall except for the door, and so is everything outside."""

    size: tuple[int, int]  # rows, columns
    start: Cell
    key: Cell
    door: Cell
    exit: Cell
    walls: tuple[Cell, ...] = ()  # inside the rooms

    def __str__(self) -> str:
        """ "key 03 door 22 exit 14 wall 01 11" """
        places = {"key": [self.key], "door": [self.door], "exit": [self.exit], "wall": self.walls}
        return " ".join(
            " ".join((name, *(f"{row}{column}" for row, column in cells)))
            for name, cells in places.items()
            if cells
        )


def cell_symbol(layout: RoomLayout, state: GridState, cell: Cell) -> str:
    """The symbol of a cell: "#", ".", "k", "d", "o" or "x"."""
    if cell == layout.door:
        return "o" if state.door_open else "d"
    inside = 0 <= cell[0] < layout.size[0] and 0 <= cell[1] < layout.size[1]
    if not inside or cell[1] == layout.door[1] or cell in layout.walls:
        return "#"
    if cell == layout.key and not state.has_key:
        return "k"
    return "x" if cell == layout.exit else "."


def observation_text(layout: RoomLayout, state: GridState) -> str:
    """Position, the symbols above, right, below and left of it, and the key: "12 #.d. key"."""
    adjacent = "".join(
        cell_symbol(layout, state, neighbor(state.cell, direction)) for direction in MOVES.values()
    )
    return f"{state.cell[0]}{state.cell[1]} {adjacent}{' key' if state.has_key else ''}"


def next_state(layout: RoomLayout, state: GridState, action: str) -> GridState | None:
    """The state after an action; None where it is illegal."""
    if action == "take":
        return (
            state._replace(has_key=True) if state.cell == layout.key and not state.has_key else None
        )
    if action == "open":
        near = any(neighbor(state.cell, direction) == layout.door for direction in MOVES.values())
        return (
            state._replace(door_open=True)
            if near and state.has_key and not state.door_open
            else None
        )
    if action not in MOVES:
        return None
    cell = neighbor(state.cell, MOVES[action])
    return None if cell_symbol(layout, state, cell) in "#d" else state._replace(cell=cell)


@lru_cache(maxsize=1024)
def exit_distances(layout: RoomLayout) -> Mapping[GridState, int]:
    """Actions from every reachable state to the exit, for states from which it can be reached."""
    states, predecessors = [GridState(layout.start)], {GridState(layout.start): []}
    for state in states:
        for action in ACTIONS:
            following = next_state(layout, state, action)
            if following is not None:
                if following not in predecessors:
                    states.append(following)
                predecessors.setdefault(following, []).append(state)
    distances = {state: 0 for state in states if state.cell == layout.exit}
    frontier = list(distances)
    for state in frontier:
        for predecessor in predecessors[state]:
            if predecessor not in distances:
                distances[predecessor] = distances[state] + 1
                frontier.append(predecessor)
    return MappingProxyType(distances)


def _is_connected(layout: RoomLayout) -> bool:
    """Whether key and exit can be reached from the start once the door is open."""
    reached, unlocked = [layout.start], GridState(layout.start, has_key=True, door_open=True)
    for cell in reached:
        neighbors = (neighbor(cell, direction) for direction in MOVES.values())
        reached += [
            candidate
            for candidate in neighbors
            if candidate not in reached and cell_symbol(layout, unlocked, candidate) != "#"
        ]
    return layout.key in reached and layout.exit in reached


def sample_layout(rng: np.random.Generator, size: tuple[int, int], max_walls: int) -> RoomLayout:
    """A random layout whose exit can be reached.

    Start and key are in one room, the exit in the other; up to `max_walls` cells are walls.
    """
    rows, columns = size
    door = int(rng.integers(rows)), int(rng.integers(1, columns - 1))
    rooms = [
        [(r, c) for r in range(rows) for c in side]
        for side in (range(door[1]), range(door[1] + 1, columns))
    ]
    near, far = rooms if rng.integers(2) else rooms[::-1]
    start, key = (near[i] for i in rng.choice(len(near), size=2, replace=False))
    layout = RoomLayout(size, start, key, door, far[rng.integers(len(far))])
    free = [cell for cell in near + far if cell not in (start, key, layout.exit)]
    for index in rng.permutation(len(free)):
        candidate = replace(layout, walls=tuple(sorted((*layout.walls, free[index]))))
        if len(candidate.walls) <= max_walls and _is_connected(candidate):
            layout = candidate
    return layout
