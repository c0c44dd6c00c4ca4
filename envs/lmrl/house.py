"""`HouseState`: the house of Text-Nav, its items, and the result of every possible command."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import MappingProxyType

OPPOSITE: Mapping[str, str] = MappingProxyType(
    {"north": "south", "south": "north", "east": "west", "west": "east"}
)
CONNECTIONS = (
    ("bedroom", "west", "living room"),
    ("living room", "west", "dining room"),
    ("dining room", "west", "kitchen"),
    ("kitchen", "north", "garden"),
    ("kitchen", "west", "backyard"),
    ("living room", "south", "office"),
    ("office", "east", "bathroom"),
    ("bedroom", "south", "bathroom"),
)
ROOMS = (
    "bedroom",
    "bathroom",
    "office",
    "living room",
    "kitchen",
    "dining room",
    "garden",
    "backyard",
)


@dataclass(frozen=True)
class Container:
    """A table with items on it, or a chest or fridge with items inside that opens and closes."""

    name: str
    room: str
    can_open: bool = False

    @property
    def location(self) -> str:
        """The name of its contents' location; the three tables share a name."""
        return f"{self.room} {self.name}"


CONTAINERS = (
    Container("table", "bedroom"),
    Container("table", "living room"),
    Container("table", "dining room"),
    Container("chest", "office", can_open=True),
    Container("fridge", "kitchen", can_open=True),
)
CONTAINER_BY_ROOM: Mapping[str, Container] = MappingProxyType(
    {holder.room: holder for holder in CONTAINERS}
)
INITIAL_LOCATIONS: Mapping[str, str] = MappingProxyType(
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
EDIBLE_ITEMS = frozenset({"stale food", "fresh food", "fruit"})
# Locations of items in addition to containers and floors, which are named after their rooms.
HAND, EATEN = "hand", "eaten"
ITEM_INDEX: Mapping[str, int] = MappingProxyType(
    {thing: number for number, thing in enumerate(INITIAL_LOCATIONS)}
)


@cache
def exits(room: str) -> Mapping[str, str]:
    """The room behind each exit; directions in alphabetical order."""
    rooms = {
        direction: destination for origin, direction, destination in CONNECTIONS if origin == room
    } | {
        OPPOSITE[direction]: origin
        for origin, direction, destination in CONNECTIONS
        if destination == room
    }
    return MappingProxyType(dict(sorted(rooms.items())))


@cache
def shortest_route(room: str, goal: str) -> tuple[str, ...]:
    """The directions of a shortest path; the alphabetically first where there are several."""
    walks: dict[str, tuple[str, ...]] = {room: ()}
    frontier = deque([room])
    while frontier:
        current = frontier.popleft()
        for direction, neighbor in exits(current).items():
            if neighbor not in walks:
                walks[neighbor] = (*walks[current], direction)
                frontier.append(neighbor)
    return walks[goal]


@dataclass(frozen=True)
class HouseState:
    """The player's room, the items' locations (in `ITEM_INDEX` order) and the open containers."""

    room: str
    item_locations: tuple[str, ...] = tuple(INITIAL_LOCATIONS.values())
    open_rooms: frozenset[str] = frozenset()

    def location_of(self, item: str) -> str:
        return self.item_locations[ITEM_INDEX[item]]

    def items_at(self, location: str) -> tuple[str, ...]:
        """The items at a location."""
        return tuple(
            thing
            for thing, where in zip(INITIAL_LOCATIONS, self.item_locations)
            if where == location
        )

    def with_item_at(self, item: str, location: str) -> "HouseState":
        number = ITEM_INDEX[item]
        return replace(
            self,
            item_locations=(
                *self.item_locations[:number],
                location,
                *self.item_locations[number + 1 :],
            ),
        )

    @property
    def is_won(self) -> bool:
        """The stale food is in the fridge, and the fridge is closed."""
        return (
            self.location_of("stale food") == "kitchen fridge" and "kitchen" not in self.open_rooms
        )

    @property
    def is_lost(self) -> bool:
        return self.location_of("stale food") == EATEN


@lru_cache(maxsize=2**16)
def command_results(state: HouseState) -> Mapping[str, HouseState]:
    """Every possible command, in alphabetical order, with the state it leads to."""
    room = state.room
    results = {"look": state, "inventory": state} | {
        f"go {direction}": replace(state, room=destination)
        for direction, destination in exits(room).items()
    }
    visible = [*state.items_at(HAND), *state.items_at(room)]
    results |= {f"take {thing}": state.with_item_at(thing, HAND) for thing in state.items_at(room)}
    results |= {f"drop {thing}": state.with_item_at(thing, room) for thing in state.items_at(HAND)}
    results |= {
        f"eat {thing}": state.with_item_at(thing, EATEN)
        for thing in state.items_at(HAND)
        if thing in EDIBLE_ITEMS
    }
    holder = CONTAINER_BY_ROOM.get(room)
    if holder is not None:
        visible.append(holder.name)
        if holder.can_open:
            results[f"{'close' if room in state.open_rooms else 'open'} {holder.name}"] = replace(
                state, open_rooms=state.open_rooms ^ {room}
            )
        if not holder.can_open or room in state.open_rooms:
            inside, put = (
                state.items_at(holder.location),
                "insert {} into {}" if holder.can_open else "put {} on {}",
            )
            visible += inside
            results |= {
                f"take {thing} from {holder.name}": state.with_item_at(thing, HAND)
                for thing in inside
            }
            results |= {
                put.format(thing, holder.name): state.with_item_at(thing, holder.location)
                for thing in state.items_at(HAND)
            }
    results |= {f"examine {name}": state for name in visible}
    return MappingProxyType(dict(sorted(results.items())))


def next_step(state: HouseState) -> str:
    """The first command of a shortest solution, from any state that is neither won nor lost."""
    location = state.location_of("stale food")
    if location == HAND:
        room, command = (
            "kitchen",
            "insert stale food into fridge" if "kitchen" in state.open_rooms else "open fridge",
        )
    elif location == "kitchen fridge":
        room, command = "kitchen", "close fridge"
    elif location in ROOMS:
        room, command = location, "take stale food"
    else:
        holder = next(holder for holder in CONTAINERS if holder.location == location)
        is_closed = holder.can_open and holder.room not in state.open_rooms
        room, command = (
            holder.room,
            f"open {holder.name}" if is_closed else f"take stale food from {holder.name}",
        )
    return command if state.room == room else f"go {shortest_route(state.room, room)[0]}"
