"""Scripted policies of `SceneQuestions`; the expert looks at each object that it needs, and thinks
in the lines of captions.
"""

import json
from typing import Protocol

import numpy as np

from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.captions import caption_line
from agentrl_jax.envs.vision.scene_protocols import SceneProtocol
from agentrl_jax.envs.vision.scenes import Scene, SceneObject, SceneQuestion
from agentrl_jax.envs.vision.views import View
from agentrl_jax.messages import Message, ToolCall


class SceneEpisode(Protocol):
    """What the policies read of `SceneQuestions`."""

    scene: Scene
    question: SceneQuestion
    protocol: SceneProtocol
    views: tuple[View, ...]
    view: int

    @property
    def turns_left(self) -> int: ...
    def view_of(self, item: SceneObject) -> View | None: ...


def _look(env: SceneEpisode, thought: str, point: boxes.Point) -> Message:
    """A thought, and a look at the surroundings of a point of the first image."""
    x, y = (round(value) for value in point)
    name, argument = (
        ("search_coordinate", "coordinate")
        if "search_coordinate" in env.protocol.tools
        else ("zoom", "point")
    )
    call = ToolCall("call_0", name, json.dumps({argument: [x, y]}))
    return Message("assistant", env.protocol.write_thought(thought), (call,))


def expert_action(env: SceneEpisode, rng: np.random.Generator) -> Message | str:
    """Looks at the objects that the question needs, and answers with what it saw."""
    items = [env.scene.named(name) for name in env.question.evidence]
    places = [caption_line(item, env.views[0], env.view) for item in items]
    details = [(item, env.view_of(item)) for item in items]
    facts = [
        str(caption_line(item, view, env.view, env.question.detail))
        for item, view in details
        if view is not None
    ]
    unseen = [line for line, (_, view) in zip(places, details) if view is None]
    if env.protocol.tools and unseen and env.turns_left > 1:
        thought = "\n".join([*facts[-1:], str(unseen[0])])
        return _look(env, thought, (unseen[0].x, unseen[0].y))
    if not env.protocol.tools:
        facts = [str(line) for line in places]
    return env.protocol.write("\n".join(facts) or "I saw enough.", env.question.answer)


def guessing_action(env: SceneEpisode, rng: np.random.Generator) -> str:
    """Answers with a uniform one of five choices."""
    choices = env.question.choices
    return env.protocol.write("I guess.", choices[int(rng.integers(len(choices)))])


def random_action(env: SceneEpisode, rng: np.random.Generator) -> Message | str:
    """Looks at a uniform point, or guesses."""
    if env.protocol.tools and env.turns_left > 1 and rng.random() < 0.5:
        x, y = rng.integers(env.view, size=2)
        return _look(env, "I look around.", (int(x), int(y)))
    return guessing_action(env, rng)


SCENE_POLICIES = {
    "random": random_action,
    "expert": expert_action,
    "mixture": MixturePolicy(expert_action, random_action, 0.85),
    "weak": MixturePolicy(expert_action, random_action, 0.5),
    "guessing": guessing_action,
}
