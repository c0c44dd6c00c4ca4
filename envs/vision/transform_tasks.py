"""`TransformTask`: a scene under a banner, turned or mirrored, and a question about it."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl_jax.envs.vision.boxes import Box
from agentrl_jax.envs.vision.image_operations import TURNS, apply, inverse
from agentrl_jax.envs.vision.images import SHAPES, WHITE, Image, blank, write
from agentrl_jax.envs.vision.scenes import CORNERS, Scene, SceneObject, make_scene, render_scene
from agentrl_jax.envs.vision.splits import Generators, TaskKey
from agentrl_jax.envs.vision.views import View, full_view

BANNER = 32  # pixels above the scene, in which the way up is written
CORRUPTIONS = ("none", *TURNS)
TRANSFORM_QUESTIONS = Generators(
    {
        "read": (
            "Which code is written on the {a}?",
            "What does the label of the {a} say?",
            "Read the code of the {a}.",
        ),
        "corner": (
            "When the image is upright, which object is nearest to its {corner} corner?",
            "Which object is closest to the {corner} corner of the upright image?",
            "Name the object at the {corner} corner, seen upright.",
        ),
        "shapes": (
            "How many {shape}s are there?",
            "Count the {shape}s.",
            "What is the number of {shape}s in the image?",
        ),
        "dots": ("", "How many dots has the {a}?"),
        "below": ("", "When the image is upright, which object is the lowest?"),
    },
    held_out=("dots", "below"),
)


@dataclass(frozen=True)
class TransformTask:
    """A corrupted image with a question; the corruption is applied to the upright canvas.

    Args:
        scene: below the banner.
        corruption: one of CORRUPTIONS.
        text: of the question.
        answer: to it.
        target: the object that must be read in detail; empty: none.
        detail: what is read of it: "code" or "dots"; empty: nothing.
        guesses: answers of the right kind, for scripted policies.
    """

    scene: Scene
    corruption: str
    text: str
    answer: str
    target: str
    detail: str
    guesses: tuple[str, ...]

    @property
    def first_view(self) -> View:
        """The corrupted image, as a view of the upright canvas."""
        view = full_view(self.scene.size, self.scene.size + BANNER)
        return view if self.corruption == "none" else apply(view, self.corruption)

    @property
    def needed(self) -> tuple[str, ...]:
        """The operations that the question needs."""
        turn = () if self.corruption == "none" else (inverse(self.corruption),)
        return (*turn, *(("crop",) if self.target else ()))

    @property
    def target_box(self) -> Box:
        """Where the target is on the upright canvas."""
        x1, y1, x2, y2 = self.scene.named(self.target).box
        return x1, y1 + BANNER, x2, y2 + BANNER

    def canvas(self) -> Image:
        """The pixels of the upright image; they must not be changed."""
        return _canvas(self.scene)


@lru_cache(16)
def _canvas(scene: Scene) -> Image:
    image = np.concatenate([blank(scene.size, BANNER, WHITE), render_scene(scene)])
    write(image, 8, 5, "THIS SIDE UP", scale=2)
    image.setflags(write=False)
    return image


def make_transform_task(
    task: TaskKey, size: int, objects: int, corruptions: tuple[str, ...]
) -> TransformTask:
    """The task of a key. A question that can be answered without tools has no corruption."""
    rng = np.random.default_rng([task.seed, 1])
    scene = make_scene(task.seed, size, objects)
    item: SceneObject = scene.objects[int(rng.integers(objects))]
    corruption = corruptions[int(rng.integers(len(corruptions)))]
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    side = int(rng.integers(len(CORNERS)))
    names = tuple(o.name for o in scene.objects)
    target, detail, answer, guesses = "", "", "", names
    match task.generator:
        case "read":
            target, detail, answer = item.name, "code", item.code
            guesses = tuple(o.code for o in scene.objects)
        case "dots":
            target, detail, answer = item.name, "dots", str(item.dots)
            guesses = tuple(map(str, range(1, 6)))
        case "shapes":
            count = sum(o.shape == shape for o in scene.objects)
            answer, corruption = str(count), "none"
            guesses = tuple(map(str, range(objects)))
        case "corner":
            answer = scene.nearest_to_corner(side).name
        case _:
            answer = max(scene.objects, key=lambda o: (o.y, o.name)).name
    text = task.phrasing.format(a=item.name, corner=CORNERS[side], shape=shape)
    return TransformTask(scene, corruption, text, answer, target, detail, guesses)
