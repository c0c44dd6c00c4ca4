"""Scripted policies of `TransformedImages`; their demonstrations right, crop, mend and answer."""

import json
from typing import Any, Protocol

import numpy as np

from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.boxes import Box
from agentrl_jax.envs.vision.captions import caption_line
from agentrl_jax.envs.vision.image_operations import FLIPS, inverse
from agentrl_jax.envs.vision.transform_tasks import BANNER, TransformTask
from agentrl_jax.envs.vision.views import View
from agentrl_jax.messages import Message, ToolCall

_PILLOW = {
    "rotate_90": "ROTATE_90",
    "rotate_180": "ROTATE_180",
    "rotate_270": "ROTATE_270",
    "flip_horizontal": "FLIP_LEFT_RIGHT",
    "flip_vertical": "FLIP_TOP_BOTTOM",
}
_SIGHT = {
    "rotate_90": "The banner runs upwards on the left side.",
    "rotate_180": "The banner is at the bottom, upside down.",
    "rotate_270": "The banner runs downwards on the right side.",
    "flip_horizontal": "The banner is mirrored.",
    "flip_vertical": "The banner is at the bottom and mirrored.",
}


class TransformEpisode(Protocol):
    """What the policies read of `TransformedImages`."""

    problem: TransformTask
    code: bool
    view: int
    last_failed: bool
    calls: int

    @property
    def images(self) -> tuple[Any, ...]: ...
    @property
    def turns_left(self) -> int: ...


def _call(thought: str, name: str, **arguments: object) -> Message:
    call = ToolCall("call_0", name, json.dumps(arguments))
    return Message("assistant", f"<think>{thought}</think>", (call,))


def _program(thought: str, code: str, index: int) -> Message:
    return _call(thought, "code_image_tool", code=code, description=thought, image_index=index)


def _answer(thought: str, answer: str) -> str:
    return f"<think>{thought}</think><answer>{answer}</answer>"


def _turn(env: TransformEpisode, thought: str, name: str, index: int) -> Message:
    """A rotation or a flip of an image."""
    if env.code:
        return _program(
            thought, f"result = image.transpose(Image.Transpose.{_PILLOW[name]})", index
        )
    if name in FLIPS:
        return _call(thought, "flip", direction=name.removeprefix("flip_"), image_index=index)
    return _call(thought, "rotate", degrees=int(name.removeprefix("rotate_")), image_index=index)


def _target_box(env: TransformEpisode, view: View, margin: float) -> Box:
    """The box of the target in a view, in the pixels in which the tools count."""
    longest = round(max(view.size)) if env.code else env.view
    width, height = view.shown_size(longest)
    box = view.shown_box(env.problem.target_box, longest)
    side = margin * max(box[2] - box[0], box[3] - box[1])
    return boxes.padded(box, side, width, height)


def _crop(env: TransformEpisode, thought: str, index: int, margin: float) -> Message:
    """A crop of the target with a margin around it."""
    view = env.images[index].view
    assert view is not None
    box = boxes.rounded(_target_box(env, view, margin))
    if env.code:
        return _program(thought, f"result = image.crop(({', '.join(map(str, box))}))", index)
    return _call(thought, "crop", box=box, image_index=index)


def _latest(env: TransformEpisode) -> tuple[int, View]:
    """The last image whose view is known."""
    index = max(i for i, image in enumerate(env.images) if image.view is not None)
    return index, env.images[index].view


def _shows_target(env: TransformEpisode, view: View) -> bool:
    """Whether a view shows the target whole and in detail."""
    box = env.problem.target_box
    is_whole = boxes.intersection(view.box, box) >= 0.9 * boxes.area(box)
    return is_whole and max(view.size) <= env.view


def expert_action(env: TransformEpisode, rng: np.random.Generator) -> Message | str:
    """Rights the image, crops the target, and answers with what it saw."""
    problem = env.problem
    index, view = _latest(env)
    if problem.corruption != "none" and env.turns_left > 1 and not view.is_upright:
        if view.box == problem.first_view.box and index == 0:
            name = inverse(problem.corruption)
            thought = f"{_SIGHT[problem.corruption]} I right the image by {name}."
            return _turn(env, thought, name, 0)
        return _turn(env, "I turn it on.", "rotate_90", index)
    if problem.target and env.turns_left > 1 and not _shows_target(env, view):
        complete = [i for i, image in enumerate(env.images) if _holds(env, image.view)]
        return _crop(env, f"I look at the {problem.target} in detail.", complete[-1], 0.1)
    return _answer(_reason(env), problem.answer)


def _holds(env: TransformEpisode, view: View | None) -> bool:
    """Whether an image shows all of the target, upright."""
    if view is None or not view.is_upright:
        return False
    box = env.problem.target_box
    return boxes.intersection(view.box, box) >= 0.9 * boxes.area(box)


def _reason(env: TransformEpisode) -> str:
    """What is seen at the end: the line of a caption, where the answer is about one object."""
    problem = env.problem
    name = problem.target or problem.answer
    item = next((item for item in problem.scene.objects if item.name == name), None)
    if item is None:
        return f"The image is upright; I see {problem.answer}."
    return str(caption_line(item, _latest(env)[1], env.view, problem.detail, BANNER))


def single_action(env: TransformEpisode, rng: np.random.Generator) -> Message | str:
    """One program that rights the image and crops the target; the expert without `code`."""
    problem = env.problem
    if not env.code or env.calls or not problem.needed or env.turns_left < 2:
        return expert_action(env, rng)
    code, view, thought = "result = image", problem.first_view, ""
    if problem.corruption != "none":
        name = inverse(problem.corruption)
        code += f".transpose(Image.Transpose.{_PILLOW[name]})"
        thought = f"{_SIGHT[problem.corruption]} I right it. "
        view = View(view.box)
    if problem.target:
        box = boxes.rounded(_target_box(env, view, 0.1))
        code += f".crop(({', '.join(map(str, box))}))"
        thought += f"I look at the {problem.target} in detail."
    return _program(thought.strip(), code, 0)


def shrinking_action(env: TransformEpisode, rng: np.random.Generator) -> Message | str:
    """The expert, which crops a wide part first."""
    index, view = _latest(env)
    is_wide = boxes.area(view.box) == boxes.area(env.problem.first_view.box)
    if env.problem.target and view.is_upright and is_wide and env.turns_left > 2:
        return _crop(env, f"The {env.problem.target} is in this part.", index, 2.0)
    return expert_action(env, rng)


def recovering_action(env: TransformEpisode, rng: np.random.Generator) -> Message | str:
    """The expert, whose first call fails with probability .3; it reads the error and goes on."""
    if env.problem.needed and not env.calls and env.turns_left > 3 and rng.random() < 0.3:
        if env.code:
            return _program("I turn the image.", "result = image.turn(90)", 0)
        return _call("I look at the other side.", "crop", box=[0, 0, 9999, 9999], image_index=0)
    action = expert_action(env, rng)
    if env.last_failed and isinstance(action, Message):
        text = action.text.replace("<think>", "<think>The call failed; I do it in another way. ")
        return action.replace(content=text)
    return action


def guessing_action(env: TransformEpisode, rng: np.random.Generator) -> str:
    """A uniform answer of the right kind."""
    guesses = env.problem.guesses
    return _answer("I guess.", guesses[int(rng.integers(len(guesses)))])


def random_action(env: TransformEpisode, rng: np.random.Generator) -> Message | str:
    """A uniform rotation or flip of the first image, or a guess."""
    if env.turns_left > 1 and rng.random() < 0.5:
        name = list(_PILLOW)[int(rng.integers(len(_PILLOW)))]
        return _turn(env, "I try it.", name, 0)
    return guessing_action(env, rng)


TRANSFORM_POLICIES = {
    "random": random_action,
    "expert": expert_action,
    "single": single_action,
    "shrinking": shrinking_action,
    "recovering": recovering_action,
    "mixture": MixturePolicy(recovering_action, random_action, 0.85),
    "weak": MixturePolicy(recovering_action, random_action, 0.5),
    "guessing": guessing_action,
}
