"""`State`: the house of Text-Nav, where everything is in it, and what every possible command makes of it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import MappingProxyType

OPPOSITE: Mapping[str, str] = MappingProxyType({"north": "south", "south": "north", "east": "west", "west": "east"})
WAYS = (
    ("bedroom", "west", "living room"),
    ("living room", "west", "dining room"),
    ("dining room", "west", "kitchen"),
    ("kitchen", "north", "garden"),
    ("kitchen", "west", "backyard"),
    ("living room", "south", "office"),
    ("office", "east", "bathroom"),
    ("bedroom", "south", "bathroom"),
)
ROOMS = ("bedroom", "bathroom", "office", "living room", "kitchen", "dining room", "garden", "backyard")


@dataclass(frozen=True)
class Holder:
    """A piece of furniture: a table has things on it, a chest or a fridge has them inside and opens and closes."""

    name: str
    room: str
    opens: bool = False

    @property
    def place(self) -> str:
        """What its contents' place is called: the three tables share a name."""
        return f"{self.room} {self.name}"


HOLDERS = (
    Holder("table", "bedroom"),
    Holder("table", "living room"),
    Holder("table", "dining room"),
    Holder("chest", "office", opens=True),
    Holder("fridge", "kitchen", opens=True),
)
HOLDER_IN: Mapping[str, Holder] = MappingProxyType({holder.room: holder for holder in HOLDERS})
THINGS: Mapping[str, str] = MappingProxyType(
    {
        "stale food": "living room table",
        "fresh food": "living room table",
        "bowl": "bedroom table",
        "coffee cup": "dining room table",
        "plate": "dining room table",
        "utensils": "office chest",
        "fruit": "kitchen fridge",
    }
)
EDIBLE = frozenset({"stale food", "fresh food", "fruit"})
HAND, EATEN = "hand", "eaten"  # places of things, beside the furniture and the floors, which are called as their rooms
NUMBER: Mapping[str, int] = MappingProxyType({thing: number for number, thing in enumerate(THINGS)})


@cache
def exits(room: str) -> Mapping[str, str]:
    """The room behind each way out, ways in alphabetical order."""
    found = {way: there for here, way, there in WAYS if here == room} | {OPPOSITE[way]: here for here, way, there in WAYS if there == room}
    return MappingProxyType(dict(sorted(found.items())))


@cache
def route(room: str, goal: str) -> tuple[str, ...]:
    """The ways of a shortest walk; the alphabetically first where there are several."""
    walks: dict[str, tuple[str, ...]] = {room: ()}
    frontier = deque([room])
    while frontier:
        here = frontier.popleft()
        for way, there in exits(here).items():
            if there not in walks:
                walks[there] = (*walks[here], way)
                frontier.append(there)
    return walks[goal]


@dataclass(frozen=True)
class State:
    """Where the player is, where the things are (in the order of `THINGS`), and which rooms' holders are open."""

    room: str
    places: tuple[str, ...] = tuple(THINGS.values())
    open: frozenset[str] = frozenset()

    def place(self, thing: str) -> str:
        return self.places[NUMBER[thing]]

    def at(self, place: str) -> tuple[str, ...]:
        """The things there."""
        return tuple(thing for thing, where in zip(THINGS, self.places) if where == place)

    def moved(self, thing: str, place: str) -> "State":
        number = NUMBER[thing]
        return replace(self, places=(*self.places[:number], place, *self.places[number + 1 :]))

    @property
    def won(self) -> bool:
        """The stale food is in the fridge, and the fridge is closed."""
        return self.place("stale food") == "kitchen fridge" and "kitchen" not in self.open

    @property
    def lost(self) -> bool:
        return self.place("stale food") == EATEN


@lru_cache(maxsize=2**16)
def commands(state: State) -> Mapping[str, State]:
    """Every command that is possible now and the state that it leads to, in alphabetical order."""
    room = state.room
    found = {"look": state, "inventory": state} | {f"go {way}": replace(state, room=there) for way, there in exits(room).items()}
    seen = [*state.at(HAND), *state.at(room)]
    found |= {f"take {thing}": state.moved(thing, HAND) for thing in state.at(room)}
    found |= {f"drop {thing}": state.moved(thing, room) for thing in state.at(HAND)}
    found |= {f"eat {thing}": state.moved(thing, EATEN) for thing in state.at(HAND) if thing in EDIBLE}
    holder = HOLDER_IN.get(room)
    if holder is not None:
        seen.append(holder.name)
        if holder.opens:
            found[f"{'close' if room in state.open else 'open'} {holder.name}"] = replace(state, open=state.open ^ {room})
        if not holder.opens or room in state.open:
            inside, put = state.at(holder.place), "insert {} into {}" if holder.opens else "put {} on {}"
            seen += inside
            found |= {f"take {thing} from {holder.name}": state.moved(thing, HAND) for thing in inside}
            found |= {put.format(thing, holder.name): state.moved(thing, holder.place) for thing in state.at(HAND)}
    found |= {f"examine {name}": state for name in seen}
    return MappingProxyType(dict(sorted(found.items())))


def next_step(state: State) -> str:
    """The first command of a shortest way to win, from any state that is neither won nor lost."""
    place = state.place("stale food")
    if place == HAND:
        room, here = "kitchen", "insert stale food into fridge" if "kitchen" in state.open else "open fridge"
    elif place == "kitchen fridge":
        room, here = "kitchen", "close fridge"
    elif place in ROOMS:
        room, here = place, "take stale food"
    else:
        holder = next(holder for holder in HOLDERS if holder.place == place)
        shut = holder.opens and holder.room not in state.open
        room, here = holder.room, f"open {holder.name}" if shut else f"take stale food from {holder.name}"
    return here if state.room == room else f"go {route(state.room, room)[0]}"
