"""`RoomLayouts`: furnish a room in JSON, see the layout drawn, and refine it."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply, look
from agentrl_jax.envs.vision.room_physics import (
    collision_ratio,
    constraint_ratio,
    looks,
    physics_factors,
)
from agentrl_jax.envs.vision.rooms import (
    HEIGHT,
    ROOM_TASKS,
    Position,
    Room,
    make_room,
    render_layout,
)
from agentrl_jax.messages import Message

_FORM = re.compile(
    r"\s*<think>((?:(?!</?(?:think|answer)>).)*)</think>\s*"
    r"<answer>((?:(?!</?(?:think|answer)>).)*)</answer>\s*",
    re.DOTALL,
)
_ENTRY = re.compile(r"\{[^{}]*\}")
_COORDINATE = re.compile(r'"[xyz]"\s*:\s*(-?[\d.eE+-]+)')
_LARGEST = 1000.0  # meters
_NO_ROOM = Room(1.0, 1.0, (), (), ())
INSTRUCTION = (
    "x goes to the right, y to the back, z up; x, y is the middle of a thing and z its bottom. "
    'Write <think>...</think><answer>[{"new_object_id": "...", "x": 0.0, "y": 0.0, "z": 0.0}, ...]'
    "</answer> with each thing once."
)


def read_layout(text: str, names: Sequence[str]) -> tuple[float, list[Position] | None, str]:
    """MetaSpatial's grade of the format, the positions where it is 1, and what is wrong.

    0: not one thought and one answer; .1: the answer is not a JSON list of objects with finite
    coordinates; .5: not each thing once; 1: as asked.
    """
    match = _FORM.fullmatch(text[:50_000])
    if match is None:
        return 0.0, None, "write <think>...</think><answer>...</answer>"
    try:
        entries = json.loads(match[2])
        read = [(str(e["new_object_id"]), *(_coordinate(e[k]) for k in "xyz")) for e in entries]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0.1, None, "the answer is no JSON list of objects with new_object_id, x, y and z"
    positions = {name: (x, y, z) for name, x, y, z in read}
    if len(read) != len(names) or set(positions) != set(names):
        return 0.5, None, f"the answer must hold each of {', '.join(names)} once"
    return 1.0, [positions[name] for name in names], ""


def _coordinate(value: Any) -> float:
    """A finite number of meters. Raises ValueError where it is something else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a coordinate is a number")
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise ValueError("a coordinate is in the room")
    return float(value)


def coordinate_spans(text: str) -> list[tuple[str, int, int]]:
    """(new_object_id, start, end) of the coordinates of each object of an answer, as offsets of
    characters in the whole text.
    """
    spans = []
    start = text.find("<answer>")
    for entry in _ENTRY.finditer(text, max(0, start)):
        numbers = list(_COORDINATE.finditer(entry[0]))
        try:
            name = str(json.loads(entry[0]).get("new_object_id", ""))
        except ValueError:
            continue
        if numbers:
            offset = entry.start()
            spans.append((name, offset + numbers[0].start(1), offset + numbers[-1].end(1)))
    return spans


def layout_text(thought: str, room: Room, layout: Sequence[Position]) -> str:
    """A turn with a layout."""
    entries = [
        {"new_object_id": item.id, "x": round(x, 2), "y": round(y, 2), "z": round(z, 2)}
        for item, (x, y, z) in zip(room.furniture, layout)
    ]
    return f"<think>{thought}</think><answer>{json.dumps(entries)}</answer>"


def _expert_action(env: "RoomLayouts", rng: np.random.Generator) -> str:
    """A layout that grants all wishes."""
    wishes = "; ".join(map(str, env.room.wishes)) or "no wish"
    thought = f"The room is {env.room.width} x {env.room.depth} m. I grant: {wishes}."
    return layout_text(thought, env.room, env.room.solution)


def _refining_action(env: "RoomLayouts", rng: np.random.Generator) -> str:
    """The expert, which puts one thing in the middle of another at first and then moves it."""
    layout = list(env.room.solution)
    if env.turns_played == 0 and env.num_turns > 1:
        layout[0] = layout[1]
        first, second = (item.id for item in env.room.furniture[:2])
        return layout_text(f"I place the {first} first, then the {second}.", env.room, layout)
    name = env.room.furniture[0].id
    return layout_text(f"I look at the drawing and move the {name}.", env.room, layout)


def _random_action(env: "RoomLayouts", rng: np.random.Generator) -> str:
    """Uniform positions in a larger room; with probability .5 it forgets a thing."""
    room = env.room
    scale = 1.3 * np.array([room.width, room.depth, HEIGHT])
    layout = [
        (float(x), float(y), float(z)) for x, y, z in rng.random((len(room.solution), 3)) * scale
    ]
    text = layout_text("I place all at random.", room, layout)
    if rng.random() < 0.5:
        start, end = text.rfind(", {"), text.rfind("]")
        text = text[:start] + text[end:]
    return text


class RoomLayouts(ImageEnvironment):
    """MetaSpatial's turns (arXiv 2503.18470): positions of furniture as JSON, refined by drawings.

    After each turn the layout is drawn from above and from the front, and the next turn answers
    again; the episode ends after `turns`. Each turn is rewarded: .5 format below format 1, else
    looks + .5 format - .2 collisions - .2 violated wishes and bounds. The paper's looks are marks
    of a language model on a rendered picture; here they are the mean of three measurable terms,
    `envs.vision.room_physics.looks`. `success`: the last layout has no collision and no violation.
    `info` holds `format`, `collision`, `constraint`, the terms of the looks, and `span_factors`,
    [start, end, factor] for the coordinates of each thing in the action's text (3D-SPO).

    Scripted policies: `random`, `expert`, `refining`, whose first layout has a collision, and
    `mixture`, `refining` with probability .85.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: of rooms; empty: all of the split.
        turns: of an episode.
        view: width of the drawings in pixels.
        instruction: whether the opening says how to answer.
    """

    generators = ROOM_TASKS
    reward_parts = ("format", "looks", "collision", "constraint")
    reward_bounds = (0.0, 1.5)
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "refining": _refining_action,
            "mixture": MixturePolicy(_refining_action, _random_action, 0.85),
        }
    )

    def __init__(
        self,
        split: str = "train",
        kinds: Sequence[str] = (),
        turns: int = 3,
        view: int = 112,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        self.num_turns = checked_int("turns", turns, 1, 100)
        super().__init__(split, kinds, self.num_turns + 1, instruction, render_mode)
        self.view = checked_int("view", view, 28, 4096)
        self.rules = f"Furnish a room in {turns} turns, each of which sees the last. {INSTRUCTION}"
        self.room = _NO_ROOM
        self._rewind()

    def _open(self) -> None:
        self.room = make_room(self.task)

    def _rewind(self) -> None:
        self.turns_played = 0

    def _opening_messages(self) -> Messages:
        things = ", ".join(
            f"{item.id} ({item.size[0]} x {item.size[1]} x {item.size[2]} m)"
            for item in self.room.furniture
        )
        wishes = " and ".join(map(str, self.room.wishes))
        text = (
            f"{self.task.phrasing.format(wishes=wishes)} It is {self.room.width} m wide, "
            f"{self.room.depth} m deep and {HEIGHT} m high. Furniture: {things}."
        )
        text = f"{text} {INSTRUCTION}" if self.instruction else text
        return (look(text, render_layout(self.room, {}, self.view)),)

    def _respond(self, message: Message) -> Reply:
        self.turns_played += 1
        over = self.turns_played >= self.num_turns
        names = [item.id for item in self.room.furniture]
        grade, layout, fault = read_layout(message.full_text, names)
        info: dict[str, Any] = {
            "format": grade, "formatted": grade == 1, "void": grade == 0, "stopped": over,
        }  # fmt: skip
        if layout is None:
            text = f"Error: {fault}."
            reply = () if over else (Message("user", text),)
            info["span_factors"] = []
            return Reply(reply, False if over else None, {"format": 0.5 * grade}, info)
        collision, constraint = (f(self.room, layout) for f in (collision_ratio, constraint_ratio))
        terms = looks(self.room, layout)
        factors = dict(zip(names, physics_factors(self.room, layout)))
        spans = coordinate_spans(message.full_text)
        info |= {
            "collision": collision, "constraint": constraint, **terms,
            "span_factors": [[start, end, factors[name]] for name, start, end in spans],
        }  # fmt: skip
        rewards = {
            "format": 0.5,
            "looks": sum(terms.values()) / len(terms),
            "collision": -0.2 * collision,
            "constraint": -0.2 * constraint,
        }
        drawing = render_layout(self.room, dict(enumerate(layout)), self.view)
        reply = () if over else (look("This is the layout. Refine it.", drawing),)
        return Reply(reply, collision + constraint == 0 if over else None, rewards, info)
