"""`SceneQuestions`: questions about small details of a large image."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.options import checked_choice, checked_int
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.answers import is_answer_turn, is_call_turn, is_right, points_in
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply, look
from agentrl_jax.envs.vision.scene_protocols import (
    SCENE_PROTOCOLS,
    SCENE_REWARDS,
    VIGORL_MAX_CROPS,
    VIGORL_POINT_DISTANCE,
    LookCounts,
)
from agentrl_jax.envs.vision.scenes import (
    OBJECT,
    SCENE_QUESTIONS,
    Scene,
    SceneObject,
    SceneQuestion,
    ask,
    make_scene,
    render_scene,
)
from agentrl_jax.envs.vision.scripted_looks import SCENE_POLICIES
from agentrl_jax.envs.vision.views import View, full_view
from agentrl_jax.images.loading import image_part
from agentrl_jax.messages import Message, user
from agentrl_jax.tools import Tool, ToolOutput

_NO_SCENE = Scene(0, ())
_NO_QUESTION = SceneQuestion("", "", (), (), "")
MAX_OBJECTS = 20
_MAX_IMAGES = 12  # of an episode


class SceneQuestions(ImageEnvironment):
    """A question about small objects: look closer with tools, then answer.

    The agent sees the scene with `view` pixels a side; tools show parts of it, cut from its full
    resolution of `size` pixels, with `view` pixels on the longer side. Coordinates are pixels of an
    image as it is shown. A turn with an answer ends the episode; `success` is the right answer.
    `info` holds `called_tools`, `formatted`, `void`, `answer`, `gold`, `evidence`, the share of the
    needed objects that a crop showed at full resolution, and `iou`, the best overlap of a crop with
    the object that the question is about: measures, not rewards.

    Scripted policies: `random`, `expert`, `guessing`, which answers with a uniform choice, and
    `mixture` and `weak`, in each turn the expert with probability .85 and .5.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: of questions; empty: all of the split.
        protocol: "plain", "direct", "vigorl" or "vigorl_single".
        reward: "outcome", "vigorl" or "vigorl_single".
        size: side of the scene in pixels.
        view: longer side of the images that are shown.
        objects: in the scene.
        zoom_half: half the side of the square around a point, in pixels of the scene.
        horizon: turns before truncation.
        instruction: whether the opening says how to look and answer.
    """

    generators = SCENE_QUESTIONS
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(SCENE_POLICIES)

    def __init__(
        self,
        split: str = "train",
        kinds: Sequence[str] = (),
        protocol: str = "plain",
        reward: str = "outcome",
        size: int = 448,
        view: int = 112,
        objects: int = 12,
        zoom_half: int = 40,
        horizon: int = 8,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(split, kinds, horizon, instruction, render_mode)
        name = checked_choice("protocol", protocol, SCENE_PROTOCOLS)
        self.protocol = SCENE_PROTOCOLS[name]
        self.reward_of, self.reward_bounds = SCENE_REWARDS[
            checked_choice("reward", reward, SCENE_REWARDS)
        ]
        self.size = checked_int("size", size, 6 * OBJECT, 8192)
        self.view = checked_int("view", view, 28, 4096)
        self.num_objects = checked_int("objects", objects, 6, MAX_OBJECTS)
        self.zoom_half = checked_int("zoom_half", zoom_half, 4, 4096)
        self.rules = (
            f"Answer a question about a scene in at most {horizon} turns. "
            f"{self.protocol.instruction}"
        )
        self.scene, self.question = _NO_SCENE, _NO_QUESTION
        self._rewind()

    def _open(self) -> None:
        self.scene = make_scene(self.task.seed, self.size, self.num_objects)
        self.question = ask(self.task, self.scene)

    def _rewind(self) -> None:
        self.views: tuple[View, ...] = (full_view(self.size, self.size),)
        self.points: tuple[boxes.Point, ...] = ()
        self.thought_points = 0
        self.malformed_turns = 0

    def _opening_messages(self) -> Messages:
        instruction = f" {self.protocol.instruction}" if self.instruction else ""
        pixels = self.views[0].pixels(render_scene(self.scene), self.view)
        return (look(f"{self.question.text}{instruction}", pixels),)

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        return [getattr(self, name) for name in self.protocol.tools]

    def crop(self, box: list[float], image: int = 0) -> ToolOutput:
        """Show a part of an image in detail.

        Args:
            box: [x1, y1, x2, y2] in pixels of that image
            image: its number; 0 is the first
        """
        view = self._viewed(image)
        checked = boxes.checked_box(box, *view.shown_size(self.view))
        return self._show(view.crop(view.from_shown(checked, self.view)), "the part")

    def zoom(self, point: list[float], image: int = 0) -> ToolOutput:
        """Show the surroundings of a point in detail.

        Args:
            point: [x, y] in pixels of that image
            image: its number; 0 is the first
        """
        return self._show(self._around(point, self._viewed(image)), "the surroundings")

    def rotate(self, degrees: int, image: int = 0) -> ToolOutput:
        """Turn an image counterclockwise.

        Args:
            degrees: 90, 180 or 270
            image: its number; 0 is the first
        """
        if degrees not in (90, 180, 270):
            raise ValueError(f"degrees must be 90, 180 or 270, not {degrees}")
        return self._show(self._viewed(image).turned(degrees), "the turned image")

    def enhance(self, contrast: float, image: int = 0) -> ToolOutput:
        """Change the contrast of an image.

        Args:
            contrast: from 0.5 to 4; 1 is as it is
            image: its number; 0 is the first
        """
        if not 0.5 <= contrast <= 4:
            raise ValueError(f"contrast must be from 0.5 to 4, not {contrast:g}")
        return self._show(replace(self._viewed(image), contrast=contrast), "the image")

    def search_coordinate(self, coordinate: list[float]) -> ToolOutput:
        """Show the surroundings of a point of the first image in detail.

        Args:
            coordinate: [x, y] in pixels of the first image
        """
        if len(self.views) > VIGORL_MAX_CROPS:
            raise ValueError(f"at most {VIGORL_MAX_CROPS} images are shown: answer now")
        view = self._around(coordinate, self.views[0])
        self.points += ((float(coordinate[0]), float(coordinate[1])),)
        return self._show(view, "the surroundings")

    def _viewed(self, image: int) -> View:
        """The view of this number. Raises ValueError where there is none."""
        if not 0 <= image < len(self.views):
            raise ValueError(f"there is no image {image}; the last is {len(self.views) - 1}")
        return self.views[image]

    def _around(self, point: list[float], view: View) -> View:
        """The square around a point of a view."""
        width, height = view.shown_size(self.view)
        x, y = boxes.checked_point(point, width, height)
        scale = view.size[0] / width
        center = (x * scale, y * view.size[1] / height)
        square = boxes.square_around(center, self.zoom_half, *map(int, view.size))
        return view.crop(square)

    def _show(self, view: View, name: str) -> ToolOutput:
        """The answer to a call: one more image."""
        if len(self.views) >= _MAX_IMAGES:
            raise ValueError(f"at most {_MAX_IMAGES} images are shown: answer now")
        width, height = view.shown_size(self.view)
        pixels = view.pixels(render_scene(self.scene), self.view)
        text = f"Image {len(self.views)}, {name}, {width}x{height} pixels."
        self.views += (view,)
        return ToolOutput(text, images=(image_part(pixels),))

    def _respond(self, message: Message) -> Reply:
        answer, observation = self.protocol.answer_of(message.text), ()
        info: dict[str, Any] = {"called_tools": []}
        if message.tool_calls and (answer is None or not self.protocol.start):
            observation, info = self._run_calls(message)
            info["called_tools"] = [c.name for c in message.tool_calls if not c.error]
            answer = None
        is_void = answer is None and not info["called_tools"]
        is_formatted = not is_void and info.get("formatted", True) and self._is_turn(message)
        self.malformed_turns += not is_formatted
        width, height = self.views[0].shown_size(self.view)
        points = [p for p in points_in(message.text) if p[0] <= width and p[1] <= height]
        self.thought_points += len(points)
        info.update(
            void=is_void,
            formatted=is_formatted,
            stopped=answer is not None,
            answer=answer,
            gold=self.question.answer,
            evidence=self._evidence(),
            iou=self._best_iou(),
            regions=boxes.distinct_points(self.points, VIGORL_POINT_DISTANCE),
        )
        if answer is None:
            if is_void and not observation:
                observation = (user(f"Invalid action. {self.protocol.instruction}"),)
            return Reply(observation, info=info)
        right = is_right(answer, self.question.answer)
        counts = LookCounts(
            right, self.malformed_turns == 0, self.thought_points > 0, info["regions"]
        )
        return Reply(observation, right, self.reward_of(counts), info)

    def _is_turn(self, message: Message) -> bool:
        """Whether a turn has the protocol's form."""
        if not self.protocol.thinks:
            return True
        return (is_call_turn if message.tool_calls else is_answer_turn)(message.text)

    def _crops(self) -> Sequence[View]:
        """The views that are smaller than the scene."""
        return [view for view in self.views[1:] if boxes.area(view.box) < self.size**2]

    def _evidence(self) -> float:
        """The share of the needed objects that a view showed whole at full resolution."""
        names = self.question.evidence
        seen = [self.view_of(self.scene.named(name)) is not None for name in names]
        return sum(seen) / len(seen) if seen else 1.0

    def view_of(self, item: SceneObject) -> View | None:
        """The last view that showed an object whole, at the scene's resolution or more."""
        area = boxes.area(item.box)
        views = (
            view
            for view in reversed(self.views)
            if boxes.intersection(view.box, item.box) == area and max(view.size) <= self.view
        )
        return next(views, None)

    def _best_iou(self) -> float:
        """The best overlap of a crop with the object that the question is about."""
        box = self.scene.named(self.question.target).box
        return max((boxes.iou(view.box, box) for view in self._crops()), default=0.0)
