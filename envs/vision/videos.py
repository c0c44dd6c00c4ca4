"""`Video`: a long clip in which objects appear for a few frames, and questions about them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from agentrl_jax.envs.vision.images import (
    BLACK,
    COLORS,
    SHAPES,
    WHITE,
    Image,
    blank,
    paint,
    paint_box,
    resized,
    shape_mask,
    write,
)
from agentrl_jax.envs.vision.scenes import DIGITS, LETTERS
from agentrl_jax.envs.vision.splits import Generators, TaskKey

SIDE = 56  # of a frame, in pixels
_OBJECT, _BALL = 36, 8
_RATES = (0.4, 0.5, 0.8, 1.25)  # frames a second
VIDEO_QUESTIONS = Generators(
    {
        "code": (
            "Which code has the {a}?",
            "What is written on the {a} of the video?",
            "Read the label of the {a} when it appears.",
        ),
        "time": (
            "Which object is shown at {time}?",
            "What can be seen at {time}?",
            "Name the object of the video at {time}.",
        ),
        "order": (
            "Which appears first, the {a} or the {b}?",
            "Is the {a} or the {b} shown earlier?",
            "Of the {a} and the {b}, name the one that comes first.",
        ),
        "count": ("", "How many objects appear in the video?"),
        "after": ("", "Which object appears next after the {a}?"),
    },
    held_out=("count", "after"),
)


@dataclass(frozen=True)
class Event:
    """An object that is shown in the frames from `start` to `end`, both included."""

    start: int
    end: int
    color: str
    shape: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.color} {self.shape}"


@dataclass(frozen=True)
class Video:
    """Frames from 0 to `frames` - 1, so many a second, with events in the order of time."""

    seed: int
    frames: int
    rate: float
    events: tuple[Event, ...]
    clock: bool  # whether a frame shows its time

    @property
    def seconds(self) -> float:
        return self.frames / self.rate

    def frame_at(self, seconds: float) -> int:
        """The frame that is shown at a time."""
        return min(self.frames - 1, int(seconds * self.rate))

    def time_of(self, frame: int) -> int:
        """The first whole second at which a frame, or a later one, is shown."""
        return int(np.ceil(frame / self.rate))

    def event_at(self, frame: int) -> Event | None:
        return next((e for e in self.events if e.start <= frame <= e.end), None)


@dataclass(frozen=True)
class VideoQuestion:
    """A question about a video, its answer, and the events that one must have seen."""

    text: str
    answer: str
    events: tuple[int, ...]
    seconds: int | None = None  # the time that it names


def clock_text(seconds: int) -> str:
    """MM:SS"""
    return f"{seconds // 60:02d}:{seconds % 60:02d}"


@lru_cache(4096)
def make_video(seed: int, frames: int, clock: bool) -> Video:
    """The video of a seed: three or four objects, each in a part of its own."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 5))
    part = frames // count
    looks = rng.choice(len(COLORS) * len(SHAPES), count, replace=False)
    codes = rng.choice(len(LETTERS) * len(DIGITS), count, replace=False)
    events = []
    for i in range(count):
        length = int(rng.integers(part // 8, part // 4 + 1))
        start = i * part + int(rng.integers(1, part - length))
        events.append(
            Event(
                start,
                start + length - 1,
                list(COLORS)[looks[i] // len(SHAPES)],
                SHAPES[looks[i] % len(SHAPES)],
                LETTERS[codes[i] // len(DIGITS)] + DIGITS[codes[i] % len(DIGITS)],
            )
        )
    return Video(seed, frames, _RATES[int(rng.integers(len(_RATES)))], tuple(events), clock)


@lru_cache(2048)
def render_frame(video: Video, frame: int, view: int) -> Image:
    """The pixels of a frame, `view` a side; they must not be changed."""
    image = blank(SIDE, SIDE, (225, 230, 236))
    angle = 2 * np.pi * (frame + video.seed % 97) / 48
    x, y = (
        round(SIDE / 2 - _BALL / 2 + (SIDE / 2 - _BALL / 2) * f(angle)) for f in (np.cos, np.sin)
    )
    paint(image, x, y, shape_mask("circle", _BALL), (150, 150, 150))
    event = video.event_at(frame)
    if event is not None:
        left = top = (SIDE - _OBJECT) // 2
        paint(image, left, top, shape_mask(event.shape, _OBJECT), COLORS[event.color])
        paint_box(image, (left + 10, top + 17, left + 26, top + 30), WHITE)
        write(image, left + 12, top + 18, event.code)
    if video.clock:
        write(image, 1, 0, clock_text(video.time_of(frame)), BLACK)
    image = resized(image, view, view)
    image.setflags(write=False)
    return image


def ask_video(task: TaskKey, video: Video) -> VideoQuestion:
    """The question of a task; its objects are functions of the task's seed."""
    rng = np.random.default_rng([task.seed, 1])
    first, second = (int(i) for i in rng.permutation(len(video.events))[:2])
    if task.generator == "after":
        first = int(rng.integers(len(video.events) - 1))
    a, b = video.events[first], video.events[second]
    needed, seconds = (first,), None
    match task.generator:
        case "code":
            answer = a.code
        case "time":
            frame = int(rng.integers(a.start, a.end + 1))
            seconds = video.time_of(frame)
            # a second that no longer shows the event is moved back
            while video.frame_at(seconds) > a.end:
                seconds -= 1
            answer = a.name
        case "order":
            answer, needed = (a if a.start < b.start else b).name, (first, second)
        case "count":
            answer, needed = str(len(video.events)), tuple(range(len(video.events)))
        case _:
            answer, needed = video.events[first + 1].name, (first, first + 1)
    text = task.phrasing.format(a=a.name, b=b.name, time=clock_text(seconds or 0))
    return VideoQuestion(text, answer, needed, seconds)
