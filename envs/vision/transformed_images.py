"""`TransformedImages`: turned and mirrored images that an agent rights with tools or code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.answer_protocol import AnswerProtocol
from agentrl_jax.envs.options import checked_bool, checked_choice, checked_int, checked_number
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.answers import is_answer_turn, is_call_turn, is_right
from agentrl_jax.envs.vision.code_image_tool import image_sandbox, run_on_image
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply, look
from agentrl_jax.envs.vision.image_operations import (
    MAX_OPERATIONS,
    Operation,
    apply,
    operations_of,
    view_after,
)
from agentrl_jax.envs.vision.images import Image, fitted
from agentrl_jax.envs.vision.scenes import OBJECT, Scene
from agentrl_jax.envs.vision.scripted_transforms import TRANSFORM_POLICIES
from agentrl_jax.envs.vision.transform_rewards import (
    LARGEST_PROCESS,
    PARTS,
    TRANSFORM_REWARDS,
    TransformCounts,
)
from agentrl_jax.envs.vision.transform_tasks import (
    CORRUPTIONS,
    TRANSFORM_QUESTIONS,
    TransformTask,
    make_transform_task,
)
from agentrl_jax.envs.vision.views import View
from agentrl_jax.errors import UserError
from agentrl_jax.images.loading import decode, encode_png, image_part
from agentrl_jax.messages import Message, user
from agentrl_jax.sandbox.python_tool import shared_sandbox
from agentrl_jax.tool_formats import HermesToolFormat
from agentrl_jax.tools import Tool, ToolOutput, tool

PROTOCOL = AnswerProtocol(
    "Think in <think>...</think>, then call one tool, or answer in <answer>...</answer>.",
    "<answer>",
    "</answer>",
    HermesToolFormat(),
)
_NO_TASK = TransformTask(Scene(0, ()), "none", "", "", "", "", ())
_MAX_IMAGES = 16
_GRACE = 10.0  # seconds in which the sandbox ends a program that is late
_ADVICE = "You can go on: mend the call, try another, or answer."


@dataclass(frozen=True)
class SeenImage:
    """An image that was shown: a view of the upright canvas, where that is known, and the file that
    a program made.
    """

    view: View | None
    png: bytes = b""


class TransformedImages(ImageEnvironment):
    """CodeVision's turns (arXiv 2512.03746): right a corrupted image, look closer, answer.

    With `code` the tool is `code_image_tool`: a program in the sandbox gets the full image and
    gives another. Else the tools are `rotate`, `flip` and `crop`, whose boxes are pixels as shown.
    Each image that comes back can be named by its index in a later call. What a call does wrong is
    told, and the episode goes on. `info` holds `operations` so far, `needed`, `crop_iou`,
    `corruption`, `called_tools`, `tool_errors`, `formatted`, `void`, `answer` and `gold`.

    Scripted policies: `random`; `expert`, one operation a turn; `single`, all in one program (with
    `code`); `shrinking`, two crops; `recovering`, whose first call fails; `guessing`, without a
    tool; `mixture` and `weak`, in each turn `recovering` with probability .85 and .5.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: of questions; empty: all of the split.
        code: whether the tool runs programs, which needs a sandbox.
        reward: "outcome", "process" or "codevision".
        corruptions: that occur; empty: none, rotations and flips.
        size: side of the scene in pixels.
        view: longer side of the images that are shown.
        objects: in the scene.
        seconds: of a program.
        horizon: turns before truncation.
        instruction: whether the opening says how to act.
    """

    generators = TRANSFORM_QUESTIONS
    reward_parts = PARTS
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(TRANSFORM_POLICIES)

    def __init__(
        self,
        split: str = "train",
        kinds: Sequence[str] = (),
        code: bool = False,
        reward: str = "outcome",
        corruptions: Sequence[str] = (),
        size: int = 336,
        view: int = 112,
        objects: int = 8,
        seconds: float = 5.0,
        horizon: int = 8,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(split, kinds, horizon, instruction, render_mode)
        self.code = checked_bool("code", code)
        self.reward_of = TRANSFORM_REWARDS[checked_choice("reward", reward, TRANSFORM_REWARDS)]
        worst = -0.5 * horizon * (1 + MAX_OPERATIONS)
        self.reward_bounds = {
            "outcome": (0.0, 1.0),
            "process": (0.0, LARGEST_PROCESS),
            "codevision": (worst, LARGEST_PROCESS),
        }[reward]
        names = (corruptions,) if isinstance(corruptions, str) else tuple(corruptions)
        for name in names:
            checked_choice("corruptions", name, CORRUPTIONS)
        self.corruptions = names or CORRUPTIONS
        self.size = checked_int("size", size, 6 * OBJECT, 8192)
        self.view = checked_int("view", view, 28, 4096)
        self.num_objects = checked_int("objects", objects, 6, 20)
        self.seconds = checked_number("seconds", seconds, 0, 600)
        if self.seconds == 0:
            raise UserError("seconds must be above 0")
        if code:
            shared_sandbox(image_sandbox(self.seconds))  # so that a missing one is reported here
        self.rules = f"Answer a question about an image that may be turned. {PROTOCOL.instruction}"
        self.problem = _NO_TASK
        self._rewind()

    def _open(self) -> None:
        self.problem = make_transform_task(self.task, self.size, self.num_objects, self.corruptions)

    def _rewind(self) -> None:
        self.images: tuple[SeenImage, ...] = (SeenImage(self.problem.first_view),)
        self.operations: tuple[str, ...] = ()
        self.crop_iou = 0.0
        self.calls = self.malformed_turns = 0
        self.last_failed = False

    def _pixels(self, image: SeenImage) -> Image:
        """The full resolution of an image."""
        if image.view is not None and not image.png:
            return image.view.pixels(self.problem.canvas(), round(max(image.view.size)))
        return decode(image.png)

    def _opening_messages(self) -> Messages:
        first = self.images[0]
        pixels = self._pixels(first)
        size = f" Image 0 has {pixels.shape[1]}x{pixels.shape[0]} pixels." if self.code else ""
        instruction = f" {PROTOCOL.instruction}" if self.instruction else ""
        return (look(f"{self.problem.text}{size}{instruction}", fitted(pixels, self.view)),)

    def _tools(self) -> Sequence[Tool | Callable[..., Any]]:
        if self.code:
            return (tool(self.code_image_tool, self.seconds + _GRACE, 10_000),)
        return self.rotate, self.flip, self.crop

    def rotate(self, degrees: int, image_index: int = 0) -> ToolOutput:
        """Turn an image counterclockwise.

        Args:
            degrees: 90, 180 or 270
            image_index: of the image; 0 is the first
        """
        if degrees not in (90, 180, 270):
            raise ValueError(f"degrees must be 90, 180 or 270, not {degrees}")
        name = f"rotate_{degrees}"
        return self._show(apply(self._view_of(image_index), name), Operation(name))

    def flip(self, direction: str, image_index: int = 0) -> ToolOutput:
        """Mirror an image.

        Args:
            direction: horizontal, left to right, or vertical, upside down
            image_index: of the image; 0 is the first
        """
        if direction not in ("horizontal", "vertical"):
            raise ValueError(f"direction must be horizontal or vertical, not {direction:.40}")
        name = f"flip_{direction}"
        return self._show(apply(self._view_of(image_index), name), Operation(name))

    def crop(self, box: list[float], image_index: int = 0) -> ToolOutput:
        """Show a part of an image in detail.

        Args:
            box: [x1, y1, x2, y2] in pixels of that image
            image_index: of the image; 0 is the first
        """
        view = self._view_of(image_index)
        checked = boxes.checked_box(box, *view.shown_size(self.view))
        part = view.crop(view.from_shown(checked, self.view))
        return self._show(part, Operation("crop", checked))

    def code_image_tool(self, code: str, description: str = "", image_index: int = 0) -> ToolOutput:
        """Run Python code that makes a new image.

        Args:
            code: gets `image` (PIL) and sets `result`; PIL, numpy and math can be imported
            description: what the code does
            image_index: of the image that it gets; 0 is the first
        """
        source = self._image(image_index)
        png = source.png or encode_png(self._pixels(source))
        data, pixels = run_on_image(code, png, self.seconds)
        operations = operations_of(code)
        view = view_after(source.view, operations)
        return self._append(SeenImage(view, data), pixels, operations)

    def _image(self, index: int) -> SeenImage:
        """The image of this index. Raises ValueError where there is none."""
        if not 0 <= index < len(self.images):
            raise ValueError(f"there is no image {index}; the last is {len(self.images) - 1}")
        if len(self.images) >= _MAX_IMAGES:
            raise ValueError(f"at most {_MAX_IMAGES} images are shown: answer now")
        return self.images[index]

    def _view_of(self, index: int) -> View:
        view = self._image(index).view
        assert view is not None, "only programs make images that are no view"
        return view

    def _show(self, view: View, operation: Operation) -> ToolOutput:
        seen = SeenImage(view)
        return self._append(seen, view.pixels(self.problem.canvas(), self.view), [operation])

    def _append(
        self, image: SeenImage, pixels: Image, operations: Sequence[Operation]
    ) -> ToolOutput:
        """The answer to a call that succeeded."""
        self.images += (image,)
        self.operations += tuple(operation.name for operation in operations)
        is_crop = any(operation.name == "crop" for operation in operations)
        if is_crop and image.view is not None and self.problem.target:
            overlap = boxes.iou(image.view.box, self.problem.target_box)
            self.crop_iou = max(self.crop_iou, overlap)
        preview = fitted(pixels, self.view)
        height, width = (pixels if self.code else preview).shape[:2]
        text = f"Image {len(self.images) - 1}: {width}x{height} pixels."
        return ToolOutput(text, images=(image_part(preview),))

    def _respond(self, message: Message) -> Reply:
        answer, observation = PROTOCOL.answer_of(message.text), ()
        info: dict[str, Any] = {"called_tools": []}
        if message.tool_calls and answer is None:
            observation, info = self._run_calls(message)
            info["called_tools"] = [c.name for c in message.tool_calls if not c.error]
            self.calls += 1
            self.last_failed = info["tool_errors"] > 0
            if self.last_failed:
                last = observation[-1]
                observation = (*observation[:-1], last.replace(content=f"{last.text}\n{_ADVICE}"))
        is_void = answer is None and not info["called_tools"]
        is_turn = (is_call_turn if message.tool_calls else is_answer_turn)(message.text)
        is_formatted = not is_void and info.get("formatted", True) and is_turn
        self.malformed_turns += not is_formatted
        info.update(
            void=is_void,
            formatted=is_formatted,
            stopped=answer is not None,
            answer=answer,
            gold=self.problem.answer,
            corruption=self.problem.corruption,
            operations=list(self.operations),
            needed=list(self.problem.needed),
            crop_iou=self.crop_iou,
        )
        if answer is None:
            if is_void and not observation:
                observation = (user(f"Invalid action. {PROTOCOL.instruction}"),)
            return Reply(observation, info=info)
        right = is_right(answer, self.problem.answer)
        counts = TransformCounts(
            right, self.malformed_turns == 0, self.problem.needed, self.operations,
            self.crop_iou, self.calls,
        )  # fmt: skip
        return Reply((), right, self.reward_of(counts), info)
