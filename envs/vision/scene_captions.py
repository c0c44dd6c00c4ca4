"""`SceneCaptions`: name every object of an image with its place, and the dots on it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.captions import CaptionLine, caption_line, caption_score, read_caption
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply, look
from agentrl_jax.envs.vision.images import COLORS, SHAPES
from agentrl_jax.envs.vision.scenes import (
    CORNERS,
    MAX_DOTS,
    OBJECT,
    Scene,
    make_scene,
    render_scene,
)
from agentrl_jax.envs.vision.splits import Generators
from agentrl_jax.envs.vision.views import View, full_view
from agentrl_jax.messages import Message

CAPTIONS = Generators(
    {
        "scene": ("Describe the scene.", "What is in the scene?", "Name all objects of the scene."),
        "part": ("Describe the part.", "What is in the part?", "Name all objects of the part."),
        "where": ("Where is the {a}?", "Point at the {a}.", "Find the {a}."),
        "corner": (
            "What is nearest to the {corner} corner?",
            "Point at the object that is nearest to the {corner} corner.",
            "Find the object that is closest to the {corner} corner.",
        ),
        "half": ("", "Describe the half of the scene."),
    },
    held_out=("half",),
)


def _write(lines: list[CaptionLine]) -> str:
    return "\n".join(map(str, lines))


def _expert_action(env: "SceneCaptions", rng: np.random.Generator) -> str:
    return _write(env.lines)


def _random_action(env: "SceneCaptions", rng: np.random.Generator) -> str:
    """As many lines as there are, each of a random object at a random place."""
    names = [f"{color} {shape}" for color in COLORS for shape in SHAPES]
    return _write(
        [
            CaptionLine(
                names[int(rng.integers(len(names)))],
                int(rng.integers(env.view)),
                int(rng.integers(env.view)),
                int(rng.integers(1, MAX_DOTS + 1)) if line.dots else 0,
            )
            for line in env.lines
        ]
    )


class SceneCaptions(ImageEnvironment):
    """Describe a scene, a part of one at its full resolution, or one object, that of a name or the
    one at a corner, in one turn: what a policy that sees is pretrained on.

    A caption has a line for each object, from the top to the bottom: "red circle (12, 40)" with the
    pixels of its middle in the image that is shown; in a part, where the object is whole,
    "red circle (12, 40), 3 dots". The reward is the share of right lines, a coordinate within
    three pixels; `success` is a caption without a fault. `info` holds `answer`, the lines that were
    read, `gold`, and `formatted`, whether all lines have the form.

    Scripted policies: `random`, `expert`, and `mixture`, the expert with probability .85.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: "scene", "part", "where", "corner"; empty: all.
        size: side of the scene in pixels.
        view: longer side of the image that is shown.
        objects: in the scene.
        part: the longest side of a part, in pixels of the scene.
        instruction: whether the opening says how to write a caption.
    """

    generators = CAPTIONS
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.85),
        }
    )
    reward_bounds = (0.0, 1.0)
    rules = (
        "Describe an image: a line for each object with its color, shape and middle in pixels, "
        'from the top to the bottom, such as "red circle (12, 40)"; where dots can be counted, '
        '"red circle (12, 40), 3 dots".'
    )

    def __init__(
        self,
        split: str = "train",
        kinds: tuple[str, ...] = (),
        size: int = 448,
        view: int = 112,
        objects: int = 12,
        part: int = 80,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(split, kinds, 1, instruction, render_mode)
        self.size = checked_int("size", size, 6 * OBJECT, 8192)
        self.view = checked_int("view", view, 28, 4096)
        self.num_objects = checked_int("objects", objects, 6, 20)
        self.part = checked_int("part", part, OBJECT + 4, self.size)
        self.scene, self.seen = Scene(0, ()), full_view(self.size, self.size)
        self.target = ""  # the only object that is described; empty: all
        self.corner = ""

    def _open(self) -> None:
        self.scene = make_scene(self.task.seed, self.size, self.num_objects)
        rng = np.random.default_rng([self.task.seed, 2])
        self.target = self.corner = ""
        self.seen = full_view(self.size, self.size)
        match self.task.generator:
            case "part":
                side = int(rng.integers(OBJECT + 4, self.part + 1))
                item = self.scene.objects[int(rng.integers(self.num_objects))]
                room = (side - OBJECT) / 2  # the object is whole
                dx, dy = rng.uniform(-room, room, size=2).tolist()
                center = (item.x + OBJECT / 2 + dx, item.y + OBJECT / 2 + dy)
                self.seen = View(boxes.square_around(center, side / 2, self.size, self.size))
            case "where":
                self.target = self.scene.objects[int(rng.integers(self.num_objects))].name
            case "corner":
                index = int(rng.integers(len(CORNERS)))
                self.corner, self.target = CORNERS[index], self.scene.nearest_to_corner(index).name
            case "half":
                self.seen = View((0.0, 0.0, self.size / 2, float(self.size)))

    def _rewind(self) -> None:
        pass

    @property
    def lines(self) -> list[CaptionLine]:
        """The right caption."""
        lines = []
        for item in self.scene.objects:
            if self.target and item.name != self.target:
                continue
            if boxes.intersection(self.seen.box, item.box) < boxes.area(item.box):
                continue
            detail = "dots" if self.task.generator == "part" else ""
            lines.append(caption_line(item, self.seen, self.view, detail))
        return sorted(lines, key=lambda line: (line.y, line.x))

    def _opening_messages(self) -> Messages:
        instruction = f" {self.rules}" if self.instruction else ""
        pixels = self.seen.pixels(render_scene(self.scene), self.view)
        text = self.task.phrasing.format(a=self.target, corner=self.corner)
        return (look(f"{text}{instruction}", pixels),)

    def _respond(self, message: Message) -> Reply:
        right, lines = self.lines, read_caption(message.text)
        score = caption_score(lines, right)
        info: dict[str, Any] = {
            "answer": _write(lines),
            "gold": _write(right),
            "formatted": len(lines) == len(message.text.splitlines()),
        }
        return Reply((), score == 1, {"outcome": score}, info)
