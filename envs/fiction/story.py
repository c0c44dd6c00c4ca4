"""The harbour case: its rooms, what lies there, what is worth points, and what is fatal."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Room:
    """What is seen, and where each way out leads."""

    text: str
    exits: Mapping[str, str]


def _room(text: str, **exits: str) -> Room:
    return Room(text, MappingProxyType({way: there.replace("_", " ") for way, there in exits.items()}))


ROOMS: Mapping[str, Room] = MappingProxyType(
    {
        "office": _room("Rain runs down the only window of the harbour police. Your desk is bare.", south="street"),
        "street": _room(
            "A wet street between brick walls. Gulls cry in the west; the alley in the south has no lamps.",
            north="office", east="square", west="pier", south="alley",
        ),
        "square": _room(
            "The market square, empty at this hour. The town hall is in the north, an inn in the south, a clock shop in the east.",
            north="town_hall", east="clock_shop", south="inn", west="street",
        ),
        "town hall": _room("A marble hall. The clerk looks up from his stamps. Stairs lead up.", south="square", up="archive"),
        "archive": _room("Paper to the ceiling. A ledger of the harbour lies open on the table.", down="town_hall"),
        "clock shop": _room("A hundred clocks, and all have stopped. The shop was the dead man's.", west="square", east="workshop"),
        "workshop": _room(
            "Here the clockmaker was found. A steep stair goes down into the dark, and half of its steps are missing.",
            west="clock_shop", down="cellar",
        ),
        "cellar": _room("A cellar cut into the rock. A low tunnel leads east.", up="workshop", east="tunnel"),
        "tunnel": _room("You walk bent over. Somebody has dragged something heavy along here.", west="cellar", east="cave"),
        "cave": _room(
            "Crates without a customs stamp. On one of them lies a letter. You hear the sea in the north.",
            west="tunnel", north="beach",
        ),
        "beach": _room(
            "A narrow beach under the cliff. In the east the tide is breaking over the rocks; in the west a ladder leads to the pier.",
            south="cave", west="pier", east="rocks",
        ),
        "pier": _room(
            "The pier. The ferry is moored in the north. In the west the planks are rotten and end in fog.",
            east="street", north="ferry", west="fog",
        ),
        "ferry": _room("The ferry rocks on its ropes. The ferryman is mending a net.", south="pier"),
        "inn": _room(
            "The inn smells of cabbage. The innkeeper polishes the same glass again and again.",
            north="square", up="room_nine", east="kitchen",
        ),
        "room nine": _room("The room of a guest who left without paying. The bed was never slept in.", down="inn"),
        "kitchen": _room("Pots and steam. On the sill stands a glass of wine that nobody has touched.", west="inn"),
        "alley": _room("A blind alley but for a gate in the south, behind which something growls.", north="street", south="yard"),
        "yard": _room("A yard full of rope and barrels. The warehouse is in the east.", north="alley", east="warehouse"),
        "warehouse": _room("Under a sail stands the great clock that was stolen from the town hall's tower.", west="yard"),
    }
)  # fmt: skip
START = "office"
THINGS: Mapping[str, str] = MappingProxyType(
    {"badge": "office", "lamp": "clock shop", "watch": "workshop", "glove": "cellar", "bone": "kitchen"}
)
KEY_PLACES = ("room nine", "archive", "beach")
SUSPECTS: Mapping[str, str] = MappingProxyType({"ferryman": "ferry", "innkeeper": "inn", "clerk": "town hall"})
CASES = len(KEY_PLACES) * len(SUSPECTS)

# What each deed earns, once. They are called as the commands that do them, but for the arrest.
POINTS: Mapping[str, int] = MappingProxyType(
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
PROOFS = ("read ledger", "read letter", "examine clock")  # without which no judge believes you
NOTES: Mapping[str, str] = MappingProxyType(
    {
        "read ledger": "crates came in at night and were never taxed",
        "take watch": "the dead man's watch stopped at two",
        "take glove": "a glove was lost in the cellar",
        "read letter": "the letter to the smugglers was written by the {culprit}",
        "examine clock": "the stolen clock is in the warehouse",
    }
)
DONE: Mapping[str, str] = MappingProxyType(
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
DRUNK = "The wine was not for you. It is the last thing that you taste."
LOCKED = "The door of the warehouse is locked."
SHOT = "The {} laughs at a man without a badge, and draws first."
FREED = "The judge lets the {} go, and you with a letter of dismissal."
SOLVED = "The {} confesses on the way to the cells. The harbour case is closed."
NOTHING = "Nothing comes of that."
