"""`Scene`: many small objects with codes and dots on a large canvas, and questions about them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl_jax.envs.vision.boxes import Box
from agentrl_jax.envs.vision.images import (
    BLACK,
    COLORS,
    SHAPES,
    WHITE,
    Image,
    blank,
    paint,
    paint_box,
    shape_mask,
    write,
)
from agentrl_jax.envs.vision.splits import Generators, TaskKey

LETTERS, DIGITS = "ACEFHKLMNPRTUXY", "3456789"  # no two of them look alike
OBJECT = 40  # side of an object, in pixels of the canvas
MAX_DOTS = 5
CORNERS = ("upper left", "upper right", "lower left", "lower right")
CHOICES = "ABCDE"
BACKGROUND = (236, 233, 225)
SCENE_QUESTIONS = Generators(
    {
        "read": (
            "Which code is written on the {a}?",
            "What does the label of the {a} say?",
            "Read the code of the {a}.",
        ),
        "count": (
            "How many dots has the {a}?",
            "Count the dots on the {a}.",
            "What is the number of dots of the {a}?",
        ),
        "compare": (
            "Which has more dots, the {a} or the {b}?",
            "Does the {a} or the {b} have more dots?",
            "Of the {a} and the {b}, name the one with more dots.",
        ),
        "locate": (
            "Which object has the code {code}?",
            "On which object is {code} written?",
            "Find the code {code}. Whose is it?",
        ),
        "sum": ("", "How many dots have the {a} and the {b} together?"),
        "next": ("", "Which code has the object nearest to the {a}?"),
    },
    held_out=("sum", "next"),
)


@dataclass(frozen=True)
class SceneObject:
    """A colored shape with a code and dots on it."""

    color: str
    shape: str
    x: int  # of its upper left corner
    y: int
    code: str
    dots: int

    @property
    def name(self) -> str:
        return f"{self.color} {self.shape}"

    @property
    def box(self) -> Box:
        return self.x, self.y, self.x + OBJECT, self.y + OBJECT


@dataclass(frozen=True)
class Scene:
    """Objects of different names and codes on a square canvas."""

    size: int
    objects: tuple[SceneObject, ...]

    def named(self, name: str) -> SceneObject:
        return next(item for item in self.objects if item.name == name)

    def nearest_to_corner(self, corner: int) -> SceneObject:
        """The object whose middle is nearest to one of `CORNERS`, by its index."""
        x, y = corner % 2 * self.size - OBJECT / 2, corner // 2 * self.size - OBJECT / 2
        return min(self.objects, key=lambda o: ((o.x - x) ** 2 + (o.y - y) ** 2, o.name))


@dataclass(frozen=True)
class SceneQuestion:
    """A question about a scene, its answer and where that is seen."""

    text: str
    answer: str
    choices: tuple[str, ...]  # five, the answer among them
    evidence: tuple[str, ...]  # names of the objects that one must look at
    target: str  # the object that the question is about, for a measure of boxes
    detail: str = "code"  # of the evidence that is needed: "code" or "dots"

    @property
    def letter(self) -> str:
        return CHOICES[self.choices.index(self.answer)]


@lru_cache(4096)
def make_scene(seed: int, size: int, objects: int) -> Scene:
    """The scene of a seed: objects in different cells of a grid, moved at random within them."""
    rng = np.random.default_rng(seed)
    cells = size // (OBJECT + 8)
    room = size // cells - OBJECT
    places = rng.choice(cells * cells, objects, replace=False)
    looks = rng.choice(len(COLORS) * len(SHAPES), objects, replace=False)
    codes = rng.choice(len(LETTERS) * len(DIGITS), objects, replace=False)
    shifts = rng.integers(room, size=(objects, 2))
    dots = rng.integers(1, MAX_DOTS + 1, size=objects)
    if len(set(dots)) == 1:  # two of them can be compared
        dots[0] = dots[0] % MAX_DOTS + 1
    return Scene(
        size,
        tuple(
            SceneObject(
                list(COLORS)[looks[i] // len(SHAPES)],
                SHAPES[looks[i] % len(SHAPES)],
                int(places[i] % cells * (size // cells) + shifts[i, 0]),
                int(places[i] // cells * (size // cells) + shifts[i, 1]),
                LETTERS[codes[i] // len(DIGITS)] + DIGITS[codes[i] % len(DIGITS)],
                int(dots[i]),
            )
            for i in range(objects)
        ),
    )


@lru_cache(16)
def render_scene(scene: Scene) -> Image:
    """The pixels of a scene at its full resolution; they must not be changed."""
    image = blank(scene.size, scene.size, BACKGROUND)
    for item in scene.objects:
        paint(image, item.x, item.y, shape_mask(item.shape, OBJECT), COLORS[item.color])
        left, top = item.x + 12, item.y + 18
        paint_box(image, (left, top, left + 17, top + 20), WHITE)
        write(image, left + 2, top + 1, item.code)
        for dot in range(item.dots):
            x = left + 1 + 3 * dot
            paint_box(image, (x, top + 15, x + 2, top + 18), BLACK)
    image.setflags(write=False)
    return image


def ask(task: TaskKey, scene: Scene) -> SceneQuestion:
    """The question of a task; its objects and choices are functions of the task's seed."""
    rng = np.random.default_rng([task.seed, 1])
    order = rng.permutation(len(scene.objects))
    a, b = (scene.objects[i] for i in order[:2])
    if a.dots == b.dots and task.generator == "compare":
        b = next(scene.objects[i] for i in order if scene.objects[i].dots != a.dots)
    codes = [item.code for item in scene.objects]
    names = [item.name for item in scene.objects]
    evidence, target, detail = (a.name,), a.name, "code"
    match task.generator:
        case "read":
            answer, pool = a.code, codes
        case "count":
            answer, pool = str(a.dots), [str(n) for n in range(1, MAX_DOTS + 1)]
            detail = "dots"
        case "compare":
            answer, pool = (a if a.dots > b.dots else b).name, [a.name, b.name, *names]
            evidence, detail = (a.name, b.name), "dots"
        case "locate":
            answer, pool = a.name, names
        case "sum":
            answer, pool = str(a.dots + b.dots), [str(n) for n in range(2, 2 * MAX_DOTS + 1)]
            evidence, detail = (a.name, b.name), "dots"
        case _:
            others = [item for item in scene.objects if item is not a]
            nearest = min(others, key=lambda o: ((o.x - a.x) ** 2 + (o.y - a.y) ** 2, o.name))
            answer, pool, evidence, target = nearest.code, codes, (nearest.name,), nearest.name
    wrong = [text for text in dict.fromkeys(pool) if text != answer]
    chosen = [answer, *(wrong[i] for i in rng.permutation(len(wrong))[: len(CHOICES) - 1])]
    choices = tuple(chosen[i] for i in rng.permutation(len(chosen)))
    if task.generator == "count":  # all numbers that there are, as tests list them
        choices = tuple(sorted(choices))
    text = task.phrasing.format(a=a.name, b=b.name, code=a.code)
    return SceneQuestion(text, answer, choices, evidence, target, detail)
