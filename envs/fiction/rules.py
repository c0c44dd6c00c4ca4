"""`StoryState` and the outcome of every possible command in the harbour case."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from agentrl_jax.envs.fiction import story


@dataclass(frozen=True)
class StoryState:
    """The detective's room, the commands completed so far, and whether the case is over."""

    case: int  # selects the culprit and the place of the key
    room: str = story.START_ROOM
    completed_commands: frozenset[str] = frozenset()  # those with a permanent effect
    is_over: bool = False

    @property
    def culprit(self) -> str:
        return tuple(story.SUSPECT_ROOMS)[self.case % len(story.SUSPECT_ROOMS)]

    @property
    def item_rooms(self) -> dict[str, str]:
        """The initial room of every item."""
        return {**story.ITEM_ROOMS, "key": story.KEY_ROOMS[self.case // len(story.SUSPECT_ROOMS)]}

    def has_item(self, item: str) -> bool:
        return f"take {item}" in self.completed_commands and not (
            item == "bone" and "give bone to dog" in self.completed_commands
        )

    @property
    def score(self) -> int:
        return sum(
            points
            for deed, points in story.COMMAND_POINTS.items()
            if deed in self.completed_commands
        )

    @property
    def is_solved(self) -> bool:
        return "arrest" in self.completed_commands


@dataclass(frozen=True)
class CommandOutcome:
    """The next state after a command, and the answer to it."""

    state: StoryState
    text: str


def is_fatal(state: StoryState, direction: str) -> bool:
    """Whether a move in this direction ends the story."""
    guard = {("workshop", "down"): "light lamp", ("yard", "east"): "give bone to dog"}.get(
        (state.room, direction)
    )
    return (state.room, direction) in story.FATAL_STEPS and (
        guard is None or guard not in state.completed_commands
    )


def _move_outcomes(state: StoryState) -> Iterator[tuple[str, CommandOutcome]]:
    for direction, room in story.ROOMS[state.room].exits.items():
        if is_fatal(state, direction):
            yield (
                direction,
                CommandOutcome(
                    replace(state, is_over=True), story.FATAL_STEPS[state.room, direction]
                ),
            )
        elif room == "warehouse" and "unlock door" not in state.completed_commands:
            yield direction, CommandOutcome(state, story.LOCKED_DOOR_TEXT)
        else:
            yield direction, CommandOutcome(replace(state, room=room), f"You go {direction}.")


def _permanent_commands(state: StoryState) -> Iterator[str]:
    """The commands with a permanent effect, except arrests."""
    yield from (f"take {thing}" for thing, room in state.item_rooms.items() if room == state.room)
    yield from (
        f"read {text}"
        for text, room in (("ledger", "archive"), ("letter", "cave"))
        if room == state.room
    )
    if state.has_item("lamp"):
        yield "light lamp"
    if state.room == "yard" and state.has_item("bone"):
        yield "give bone to dog"
    if (
        state.room == "yard"
        and state.has_item("key")
        and "give bone to dog" in state.completed_commands
    ):
        yield "unlock door"
    if state.room == "warehouse":
        yield "examine clock"


def _arrest_outcome(state: StoryState, suspect: str) -> CommandOutcome:
    if not state.has_item("badge"):
        return CommandOutcome(replace(state, is_over=True), story.NO_BADGE_TEXT.format(suspect))
    if suspect != state.culprit or not state.completed_commands.issuperset(story.REQUIRED_PROOFS):
        return CommandOutcome(replace(state, is_over=True), story.WRONG_ARREST_TEXT.format(suspect))
    return CommandOutcome(
        replace(state, completed_commands=state.completed_commands | {"arrest"}, is_over=True),
        story.SOLVED_TEXT.format(suspect),
    )


@lru_cache(maxsize=2**14)
def command_outcomes(state: StoryState) -> Mapping[str, CommandOutcome]:
    """Every possible command, in alphabetical order, with its outcome."""
    outcomes = dict(_move_outcomes(state))
    for command in _permanent_commands(state):
        if command not in state.completed_commands:
            verb, _, argument = command.partition(" ")
            outcomes[command] = CommandOutcome(
                replace(state, completed_commands=state.completed_commands | {command}),
                story.COMMAND_REPLIES[verb].format(argument),
            )
    outcomes |= {
        f"arrest {suspect}": _arrest_outcome(state, suspect)
        for suspect, room in story.SUSPECT_ROOMS.items()
        if room == state.room
    }
    if state.room == "kitchen":
        outcomes["drink wine"] = CommandOutcome(replace(state, is_over=True), story.DRUNK_TEXT)
    return MappingProxyType(dict(sorted(outcomes.items())))


def first_step_towards(state: StoryState, goal: str) -> str | None:
    """The first move of a shortest safe path to a room; None where there is none."""
    visited, frontier = {state.room}, deque([(state, "")])
    while frontier:
        current, first = frontier.popleft()
        if current.room == goal:
            return first
        for direction, outcome in _move_outcomes(current):
            if not outcome.state.is_over and outcome.state.room not in visited:
                visited.add(outcome.state.room)
                frontier.append((outcome.state, first or direction))
    return None


def solution_plan(state: StoryState) -> list[tuple[str, str]]:
    """The (room, command) pairs that earn all points, in a feasible order."""
    item_rooms = state.item_rooms
    round_trip = [
        "take badge",
        "read ledger",
        "take lamp",
        "light lamp",
        "take watch",
        "take glove",
        "read letter",
        "take key",
        "take bone",
    ]
    if item_rooms["key"] == "archive":
        round_trip.insert(2, round_trip.pop(7))
    rooms = {f"take {thing}": room for thing, room in item_rooms.items()} | {
        "read ledger": "archive",
        "read letter": "cave",
    }
    end = [("yard", "give bone to dog"), ("yard", "unlock door"), ("warehouse", "examine clock")]
    return [
        *((rooms.get(deed, state.room), deed) for deed in round_trip),
        *end,
        (story.SUSPECT_ROOMS[state.culprit], f"arrest {state.culprit}"),
    ]


def next_step(state: StoryState) -> str:
    """The next command of a walkthrough for all points, from any state that is not over."""
    room, command = next(
        (room, command)
        for room, command in solution_plan(state)
        if command not in state.completed_commands
    )
    step = first_step_towards(state, room)
    assert step is not None, f"{room} cannot be reached from {state}"
    return step or command
