"""Scripted policies of `SceneQuestions`; the expert looks at each object that it needs."""

import json
from typing import Protocol

import numpy as np

from agentrl_jax.envs.scripted_mixture import MixturePolicy
from agentrl_jax.envs.vision import boxes
from agentrl_jax.envs.vision.scene_protocols import SceneProtocol
from agentrl_jax.envs.vision.scenes import Scene, SceneQuestion
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
    def has_seen(self, name: str) -> bool: ...


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


def seen_fact(env: SceneEpisode, name: str) -> str:
    """What a look at an object tells."""
    item = env.scene.named(name)
    return f"The {name} has the code {item.code} and {item.dots} dots."


def _shown_center(env: SceneEpisode, name: str) -> boxes.Point:
    view = env.views[0]
    return boxes.center(view.shown_box(env.scene.named(name).box, env.view))


def expert_action(env: SceneEpisode, rng: np.random.Generator) -> Message | str:
    """Looks at the objects that the question needs, and answers with what it saw."""
    facts = [seen_fact(env, name) for name in env.question.evidence if env.has_seen(name)]
    unseen = [name for name in env.question.evidence if not env.has_seen(name)]
    if env.protocol.tools and unseen and env.turns_left > 1:
        x, y = _shown_center(env, unseen[0])
        where = f"The {unseen[0]} is at ({x:.0f}, {y:.0f}): I look closer."
        return _look(env, " ".join([*facts[-1:], where]), (x, y))
    if not env.protocol.tools:
        centers = [(name, *_shown_center(env, name)) for name in env.question.evidence]
        facts = [f"The {name} is at ({x:.0f}, {y:.0f})." for name, x, y in centers]
    return env.protocol.write(" ".join(facts) or "I saw enough.", env.question.answer)


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
