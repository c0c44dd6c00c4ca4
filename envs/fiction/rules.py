"""`State`: how far the harbour case has come, and the outcome of every possible command."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from agentrl_jax.envs.fiction import story


@dataclass(frozen=True)
class State:
    """Where the detective is, what has been done, and how it ended, if it did."""

    case: int  # who did it, and where the key lies
    room: str = story.START
    done: frozenset[str] = frozenset()  # commands that were carried out and leave something changed
    over: bool = False

    @property
    def culprit(self) -> str:
        return tuple(story.SUSPECTS)[self.case % len(story.SUSPECTS)]

    @property
    def things(self) -> dict[str, str]:
        """Where each thing lies at the start."""
        return {**story.THINGS, "key": story.KEY_PLACES[self.case // len(story.SUSPECTS)]}

    def has(self, thing: str) -> bool:
        return f"take {thing}" in self.done and not (thing == "bone" and "give bone to dog" in self.done)

    @property
    def score(self) -> int:
        return sum(points for deed, points in story.POINTS.items() if deed in self.done)

    @property
    def solved(self) -> bool:
        return "arrest" in self.done


@dataclass(frozen=True)
class Outcome:
    """What a command leads to, and what is said of it."""

    state: State
    text: str


def fatal(state: State, way: str) -> bool:
    """A step that way is the last one."""
    guard = {("workshop", "down"): "light lamp", ("yard", "east"): "give bone to dog"}.get((state.room, way))
    return (state.room, way) in story.FATAL_STEPS and (guard is None or guard not in state.done)


def _steps(state: State) -> Iterator[tuple[str, Outcome]]:
    for way, there in story.ROOMS[state.room].exits.items():
        if fatal(state, way):
            yield way, Outcome(replace(state, over=True), story.FATAL_STEPS[state.room, way])
        elif there == "warehouse" and "unlock door" not in state.done:
            yield way, Outcome(state, story.LOCKED)
        else:
            yield way, Outcome(replace(state, room=there), f"You go {way}.")


def _deeds(state: State) -> Iterator[str]:
    """The commands that change something for good, but for arrests."""
    yield from (f"take {thing}" for thing, room in state.things.items() if room == state.room)
    yield from (f"read {text}" for text, room in (("ledger", "archive"), ("letter", "cave")) if room == state.room)
    if state.has("lamp"):
        yield "light lamp"
    if state.room == "yard" and state.has("bone"):
        yield "give bone to dog"
    if state.room == "yard" and state.has("key") and "give bone to dog" in state.done:
        yield "unlock door"
    if state.room == "warehouse":
        yield "examine clock"


def _arrest(state: State, suspect: str) -> Outcome:
    if not state.has("badge"):
        return Outcome(replace(state, over=True), story.SHOT.format(suspect))
    if suspect != state.culprit or not state.done.issuperset(story.PROOFS):
        return Outcome(replace(state, over=True), story.FREED.format(suspect))
    return Outcome(replace(state, done=state.done | {"arrest"}, over=True), story.SOLVED.format(suspect))


@lru_cache(maxsize=2**14)
def outcomes(state: State) -> Mapping[str, Outcome]:
    """Every possible command, in alphabetical order."""
    found = dict(_steps(state))
    for deed in _deeds(state):
        if deed not in state.done:
            verb, _, rest = deed.partition(" ")
            found[deed] = Outcome(replace(state, done=state.done | {deed}), story.DONE[verb].format(rest))
    found |= {f"arrest {suspect}": _arrest(state, suspect) for suspect, room in story.SUSPECTS.items() if room == state.room}
    if state.room == "kitchen":
        found["drink wine"] = Outcome(replace(state, over=True), story.DRUNK)
    return MappingProxyType(dict(sorted(found.items())))


def walk(state: State, goal: str) -> str | None:
    """The first step of a shortest safe way to a room as things stand; None where there is none."""
    seen, frontier = {state.room}, deque([(state, "")])
    while frontier:
        here, first = frontier.popleft()
        if here.room == goal:
            return first
        for way, outcome in _steps(here):
            if not outcome.state.over and outcome.state.room not in seen:
                seen.add(outcome.state.room)
                frontier.append((outcome.state, first or way))
    return None


def plan(state: State) -> list[tuple[str, str]]:
    """What is to be done for all points, (room, command), in an order in which each can be."""
    places = state.things
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
    if places["key"] == "archive":
        round_trip.insert(2, round_trip.pop(7))
    rooms = {f"take {thing}": room for thing, room in places.items()} | {"read ledger": "archive", "read letter": "cave"}
    end = [("yard", "give bone to dog"), ("yard", "unlock door"), ("warehouse", "examine clock")]
    return [*((rooms.get(deed, state.room), deed) for deed in round_trip), *end, (story.SUSPECTS[state.culprit], f"arrest {state.culprit}")]


def next_step(state: State) -> str:
    """The first command of a way to all points, from any state that is not over."""
    room, command = next((room, command) for room, command in plan(state) if command not in state.done)
    step = walk(state, room)
    assert step is not None, f"{room} cannot be reached from {state}"
    return step or command
