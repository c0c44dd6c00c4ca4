"""The text and facts of the harbour case: rooms, items, points and fatal moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Room:
    """A room's description, and the room behind each exit."""

    description: str
    exits: Mapping[str, str]


def _make_room(description: str, **exits: str) -> Room:
    return Room(
        description,
        MappingProxyType({way: there.replace("_", " ") for way, there in exits.items()}),
    )


ROOMS: Mapping[str, Room] = MappingProxyType(
    {
        "office": _make_room(
            "Rain runs down the only window of the harbour police. Your desk is bare.",
            south="street",
        ),
        "street": _make_room(
            "A wet street between brick walls. Gulls cry in the west; the alley in the south has "
            "no lamps.",
            north="office",
            east="square",
            west="pier",
            south="alley",
        ),
        "square": _make_room(
            "The market square, empty at this hour. The town hall is in the north, an inn in the "
            "south, a clock shop in the east.",
            north="town_hall",
            east="clock_shop",
            south="inn",
            west="street",
        ),
        "town hall": _make_room(
            "A marble hall. The clerk looks up from his stamps. Stairs lead up.",
            south="square",
            up="archive",
        ),
        "archive": _make_room(
            "Paper to the ceiling. A ledger of the harbour lies open on the table.",
            down="town_hall",
        ),
        "clock shop": _make_room(
            "A hundred clocks, and all have stopped. The shop was the dead man's.",
            west="square",
            east="workshop",
        ),
        "workshop": _make_room(
            "Here the clockmaker was found. A steep stair goes down into the dark, and half of "
            "its steps are missing.",
            west="clock_shop",
            down="cellar",
        ),
        "cellar": _make_room(
            "A cellar cut into the rock. A low tunnel leads east.", up="workshop", east="tunnel"
        ),
        "tunnel": _make_room(
            "You walk bent over. Somebody has dragged something heavy along here.",
            west="cellar",
            east="cave",
        ),
        "cave": _make_room(
            "Crates without a customs stamp. On one of them lies a letter. You hear the sea in "
            "the north.",
            west="tunnel",
            north="beach",
        ),
        "beach": _make_room(
            "A narrow beach under the cliff. In the east the tide is breaking over the rocks; in "
            "the west a ladder leads to the pier.",
            south="cave",
            west="pier",
            east="rocks",
        ),
        "pier": _make_room(
            "The pier. The ferry is moored in the north. In the west the planks are rotten and "
            "end in fog.",
            east="street",
            north="ferry",
            west="fog",
        ),
        "ferry": _make_room(
            "The ferry rocks on its ropes. The ferryman is mending a net.", south="pier"
        ),
        "inn": _make_room(
            "The inn smells of cabbage. The innkeeper polishes the same glass again and again.",
            north="square",
            up="room_nine",
            east="kitchen",
        ),
        "room nine": _make_room(
            "The room of a guest who left without paying. The bed was never slept in.", down="inn"
        ),
        "kitchen": _make_room(
            "Pots and steam. On the sill stands a glass of wine that nobody has touched.",
            west="inn",
        ),
        "alley": _make_room(
            "A blind alley but for a gate in the south, behind which something growls.",
            north="street",
            south="yard",
        ),
        "yard": _make_room(
            "A yard full of rope and barrels. The warehouse is in the east.",
            north="alley",
            east="warehouse",
        ),
        "warehouse": _make_room(
            "Under a sail stands the great clock that was stolen from the town hall's tower.",
            west="yard",
        ),
    }
)
START_ROOM = "office"
ITEM_ROOMS: Mapping[str, str] = MappingProxyType(
    {
        "badge": "office",
        "lamp": "clock shop",
        "watch": "workshop",
        "glove": "cellar",
        "bone": "kitchen",
    }
)
KEY_ROOMS = ("room nine", "archive", "beach")
SUSPECT_ROOMS: Mapping[str, str] = MappingProxyType(
    {"ferryman": "ferry", "innkeeper": "inn", "clerk": "town hall"}
)
NUM_CASES = len(KEY_ROOMS) * len(SUSPECT_ROOMS)

# What each deed earns, once. They are called as the commands that do them, but for the arrest.
COMMAND_POINTS: Mapping[str, int] = MappingProxyType(
    {
        "take badge": 10,
        "read ledger": 20,
        "light lamp": 10,
        "take watch": 20,
        "take glove": 20,
        "read letter": 30,
        "take key": 10,
        "give bone to dog": 20,
        "examine clock": 40,
        "arrest": 100,
    }
)
REQUIRED_PROOFS = (
    "read ledger",
    "read letter",
    "examine clock",
)  # without which no judge believes you
NOTES: Mapping[str, str] = MappingProxyType(
    {
        "read ledger": "crates came in at night and were never taxed",
        "take watch": "the dead man's watch stopped at two",
        "take glove": "a glove was lost in the cellar",
        "read letter": "the letter to the smugglers was written by the {culprit}",
        "examine clock": "the stolen clock is in the warehouse",
    }
)
COMMAND_REPLIES: Mapping[str, str] = MappingProxyType(
    {
        "take": "You take the {}.",
        "read": "You copy what matters into your notebook.",
        "light": "The lamp burns with a small steady flame.",
        "give": "The dog takes the bone and has no eyes for anything else.",
        "unlock": "The lock gives way.",
        "examine": "The maker's name is filed off, but you know this clock. You make a note.",
    }
)
# (room, way): where a step is the last one.
FATAL_STEPS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("pier", "west"): "A plank breaks. The water is very cold, and nobody hears you.",
        ("beach", "east"): "The next wave is higher than you, and the rocks are hard.",
        ("workshop", "down"): "In the dark your foot finds a step that is not there.",
        ("yard", "east"): "The dog is faster than you are.",
    }
)
DRUNK_TEXT = "The wine was not for you. It is the last thing that you taste."
LOCKED_DOOR_TEXT = "The door of the warehouse is locked."
NO_BADGE_TEXT = "The {} laughs at a man without a badge, and draws first."
WRONG_ARREST_TEXT = "The judge lets the {} go, and you with a letter of dismissal."
SOLVED_TEXT = "The {} confesses on the way to the cells. The harbour case is closed."
NO_EFFECT_TEXT = "Nothing comes of that."
