"""Two rooms, a key, a door and an exit: what `KeyDoor` is played on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

Cell = tuple[int, int]  # (row, column), from the top left

MOVES: Mapping[str, Cell] = MappingProxyType({"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)})
WORDS = (*MOVES, "take", "open")


class State(NamedTuple):
    cell: Cell
    key: bool = False  # taken
    open: bool = False


@dataclass(frozen=True)
class Layout:
    """The door's column is a wall but for the door, and so is everything outside."""

    size: tuple[int, int]  # rows, columns
    start: Cell
    key: Cell
    door: Cell
    exit: Cell
    walls: tuple[Cell, ...] = ()  # besides

    def __str__(self) -> str:
        """ "key 03 door 22 exit 14 wall 01 11" """
        places = {"key": [self.key], "door": [self.door], "exit": [self.exit], "wall": self.walls}
        return " ".join(" ".join((name, *(f"{row}{column}" for row, column in cells))) for name, cells in places.items() if cells)


def _beside(cell: Cell, way: Cell) -> Cell:
    return cell[0] + way[0], cell[1] + way[1]


def mark(layout: Layout, state: State, cell: Cell) -> str:
    """What is at a cell: "#", ".", "k", "d", "o" or "x"."""
    if cell == layout.door:
        return "o" if state.open else "d"
    inside = 0 <= cell[0] < layout.size[0] and 0 <= cell[1] < layout.size[1]
    if not inside or cell[1] == layout.door[1] or cell in layout.walls:
        return "#"
    if cell == layout.key and not state.key:
        return "k"
    return "x" if cell == layout.exit else "."


def seen(layout: Layout, state: State) -> str:
    """Where one is, what is above, right, below and left, and whether one has the key: "12 #.d. key"."""
    around = "".join(mark(layout, state, _beside(state.cell, way)) for way in MOVES.values())
    return f"{state.cell[0]}{state.cell[1]} {around}{' key' if state.key else ''}"


def after(layout: Layout, state: State, word: str) -> State | None:
    """The state after an action; None where it is not possible."""
    if word == "take":
        return state._replace(key=True) if state.cell == layout.key and not state.key else None
    if word == "open":
        near = any(_beside(state.cell, way) == layout.door for way in MOVES.values())
        return state._replace(open=True) if near and state.key and not state.open else None
    if word not in MOVES:
        return None
    cell = _beside(state.cell, MOVES[word])
    return None if mark(layout, state, cell) in "#d" else state._replace(cell=cell)


@lru_cache(maxsize=1024)
def distances(layout: Layout) -> Mapping[State, int]:
    """Actions from every state that the start leads to, to the exit; only states from which it can be reached."""
    states, before = [State(layout.start)], {State(layout.start): []}
    for state in states:
        for word in WORDS:
            there = after(layout, state, word)
            if there is not None:
                if there not in before:
                    states.append(there)
                before.setdefault(there, []).append(state)
    found = {state: 0 for state in states if state.cell == layout.exit}
    frontier = list(found)
    for state in frontier:
        for earlier in before[state]:
            if earlier not in found:
                found[earlier] = found[state] + 1
                frontier.append(earlier)
    return MappingProxyType(found)


def _joined(layout: Layout) -> bool:
    """Whether one gets from the start to key and exit once the door is open."""
    found, opened = [layout.start], State(layout.start, key=True, open=True)
    for cell in found:
        around = (_beside(cell, way) for way in MOVES.values())
        found += [there for there in around if there not in found and mark(layout, opened, there) != "#"]
    return layout.key in found and layout.exit in found


def drawn(rng: np.random.Generator, size: tuple[int, int], walls: int) -> Layout:
    """A layout whose exit can be reached: start and key in one room, the exit in the other, up to `walls` more walls."""
    rows, columns = size
    door = int(rng.integers(rows)), int(rng.integers(1, columns - 1))
    rooms = [[(r, c) for r in range(rows) for c in side] for side in (range(door[1]), range(door[1] + 1, columns))]
    near, far = rooms if rng.integers(2) else rooms[::-1]
    start, key = (near[i] for i in rng.choice(len(near), size=2, replace=False))
    layout = Layout(size, start, key, door, far[rng.integers(len(far))])
    free = [cell for cell in near + far if cell not in (start, key, layout.exit)]
    for place in rng.permutation(len(free)):
        more = replace(layout, walls=tuple(sorted((*layout.walls, free[place]))))
        if len(more.walls) <= walls and _joined(more):
            layout = more
    return layout
