"""`RegionQuestions`: name the region to look at, see it at full resolution, then answer."""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.environment import Messages, ScriptedPolicy
from agentrl_jax.envs.options import checked_int
from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.captions import caption_line
from agentrl_jax.envs.vision.image_environment import ImageEnvironment, Reply, look
from agentrl_jax.envs.vision.scenes import (
    CHOICES,
    OBJECT,
    SCENE_QUESTIONS,
    Scene,
    SceneQuestion,
    ask,
    make_scene,
    render_scene,
)
from agentrl_jax.envs.vision.views import View, full_view
from agentrl_jax.messages import Message

_BOX_BLOCK = re.compile(r"```json\s*(\[.*?\])\s*```", re.DOTALL)
_LETTER = re.compile(r"\\boxed\{\s*([A-E])\s*\}")
ASK_REGION = (
    "First name the region of the image that shows the answer, as "
    '```json\n[{"bbox_2d": [x1, y1, x2, y2], "label": "..."}]\n```'
)
ASK_ANSWER = "Answer with the letter of the right choice in \\boxed{}."
NO_REGION = "Not providing correct coordinates"  # how MGPO's code begins this reply
_NO_SCENE = Scene(0, ())
_NO_QUESTION = SceneQuestion("", "", (), (), "")


def read_region(text: str, width: int, height: int) -> boxes.Box:
    """The box of the first block of JSON in a text.

    Raises:
        ValueError: there is no block, or no box within the image in it.
    """
    block = _BOX_BLOCK.search(text[:20_000])
    if block is None:
        raise ValueError("there is no block ```json [...] ```")
    try:
        regions = json.loads(block[1])
    except (ValueError, RecursionError):
        raise ValueError("the block is not valid JSON") from None
    if not regions or not isinstance(regions[0], Mapping) or "bbox_2d" not in regions[0]:
        raise ValueError('the block holds no "bbox_2d"')
    return boxes.checked_box(regions[0]["bbox_2d"], width, height)


def region_text(box: boxes.Box, label: str) -> str:
    """The block of JSON of a region."""
    region = {"bbox_2d": boxes.rounded(box), "label": label}
    return f"```json\n[{json.dumps(region)}]\n```"


def _expert_action(env: "RegionQuestions", rng: np.random.Generator) -> str:
    """Names the box of the objects, then says what it saw and answers."""
    items = [env.scene.named(name) for name in env.question.evidence]
    if env.region is None:
        lines = [caption_line(item, env.scene_view, env.view) for item in items]
        visible = env.scene_view.shown_box(env.target, env.view)
        box = boxes.padded(visible, 1, env.view, env.view)
        return "\n".join([*map(str, lines), region_text(box, " and ".join(env.question.evidence))])
    lines = [caption_line(item, env.region, env.view, env.question.detail) for item in items]
    return "\n".join([*map(str, lines), f"\\boxed{{{env.question.letter}}}"])


def _random_action(env: "RegionQuestions", rng: np.random.Generator) -> str:
    """Names a uniform square, then a uniform letter."""
    if env.region is None:
        half = env.view // 8
        x, y = rng.integers(half, env.view - half, size=2)
        return region_text((x - half, y - half, x + half, y + half), "here")
    return f"\\boxed{{{CHOICES[int(rng.integers(len(env.question.choices)))]}}}"


class RegionQuestions(ImageEnvironment):
    """MGPO's two turns (arXiv 2507.05920): a box, then a choice with the crop in view.

    The first turn names a box in pixels of the image of `view` pixels a side; the environment
    answers with that part of the scene from its full resolution and asks again. Without a box
    within the image it returns the whole image and says what is wrong with the box. The second turn
    ends the episode: the reward is 1 for the right letter, else 0, and nothing for the box.
    `info["iou"]` is the box's overlap with the objects that the question needs.

    Scripted policies: `random`, `expert`, and `mixture` and `weak`, in each turn the expert with
    probability .85 and .5.

    Args:
        split: "train", "test" or "held_out" (docs/vision_worlds.md).
        kinds: of questions; empty: all of the split.
        turns: 2; 1: the choice at once, without a box, as the baseline.
        size: side of the scene in pixels.
        view: longer side of the images that are shown.
        objects: in the scene.
        instruction: whether the opening says how to name a region and answer.
    """

    generators = SCENE_QUESTIONS
    scripted_policies: ClassVar[Mapping[str, ScriptedPolicy]] = MappingProxyType(
        {
            "random": _random_action,
            "expert": _expert_action,
            "mixture": MixturePolicy(_expert_action, _random_action, 0.85),
            "weak": MixturePolicy(_expert_action, _random_action, 0.5),
        }
    )
    reward_bounds = (0.0, 1.0)
    rules = f"Answer a question about a scene in two turns. {ASK_REGION} Then: {ASK_ANSWER}"

    def __init__(
        self,
        split: str = "train",
        kinds: Sequence[str] = (),
        turns: int = 2,
        size: int = 448,
        view: int = 112,
        objects: int = 12,
        instruction: bool = True,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(split, kinds, 2, instruction, render_mode)
        self.num_turns = checked_int("turns", turns, 1, 2)
        self.size = checked_int("size", size, 6 * OBJECT, 8192)
        self.view = checked_int("view", view, 28, 4096)
        self.num_objects = checked_int("objects", objects, 6, 20)
        self.scene, self.question = _NO_SCENE, _NO_QUESTION
        self.scene_view = full_view(self.size, self.size)
        self._rewind()

    def _open(self) -> None:
        self.scene = make_scene(self.task.seed, self.size, self.num_objects)
        self.question = ask(self.task, self.scene)

    def _rewind(self) -> None:
        # what the agent has seen of the scene, None before its first turn
        self.region: View | None = None if self.num_turns == 2 else self.scene_view
        self.iou = 0.0

    @property
    def target(self) -> boxes.Box:
        """The box around the objects that the question needs, in the scene."""
        return boxes.around([self.scene.named(name).box for name in self.question.evidence])

    def _question_text(self) -> str:
        choices = "\n".join(f"{a}. {text}" for a, text in zip(CHOICES, self.question.choices))
        return f"{self.question.text}\n{choices}"

    def _opening_messages(self) -> Messages:
        ask_next = ASK_ANSWER if self.region is not None else ASK_REGION
        instruction = f"\n{ask_next}" if self.instruction else ""
        return (self._image_message(self.scene_view, f"{self._question_text()}{instruction}"),)

    def _image_message(self, view: View, text: str) -> Message:
        return look(text, view.pixels(render_scene(self.scene), self.view))

    def _respond(self, message: Message) -> Reply:
        if self.region is not None:
            return self._judge(message.text)
        try:
            box = read_region(message.text, *self.scene_view.shown_size(self.view))
            self.region = self.scene_view.crop(self.scene_view.from_shown(box, self.view))
            prefix = ""
        except ValueError as error:
            box, self.region, prefix = None, self.scene_view, f"{NO_REGION}: {error}.\n"
        if box is not None:
            self.iou = boxes.iou(self.region.box, self.target)
        reply = self._image_message(self.region, f"{prefix}{self._question_text()}\n{ASK_ANSWER}")
        info = {"formatted": box is not None, "void": box is None, "iou": self.iou, "answer": None}
        return Reply((reply,), info=info)

    def _judge(self, text: str) -> Reply:
        """The end of the episode."""
        letters = _LETTER.findall(text)
        answer = letters[-1] if letters else None
        right = answer == self.question.letter
        info: dict[str, Any] = {
            "formatted": answer is not None,
            "void": answer is None,
            "stopped": True,
            "answer": answer,
            "gold": self.question.letter,
            "iou": self.iou,
        }
        return Reply((), right, {"outcome": float(right)}, info)
