"""Random calls and episodes with images, and their training sequences."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from support.vision_policies import VOCAB_SIZE, model_image, prompt_of

from agentrl_jax.images.prompts import PromptImage
from agentrl_jax.learner.sequences import TrainingSequence, sequences_of
from agentrl_jax.messages import assistant, user
from agentrl_jax.trajectories import Call, Sampling, Trajectory, Turn


def random_call(parts: Sequence[Any], seed: int, action: int = 4) -> tuple[Call, list[PromptImage]]:
    ids, images = prompt_of(parts, seed)
    rng = np.random.default_rng(seed)
    call = Call(
        ids,
        rng.integers(0, VOCAB_SIZE, action).astype(np.int32),
        np.zeros(action, np.float32),
        np.zeros(action, np.int32),
        Sampling(temperature=0.8),
        "stop",
        image_spans=tuple((x.start, x.end) for x in images),
        images=tuple(x.image.part for x in images),
    )
    return call, images


def extended(
    call: Call, images: Sequence[PromptImage], parts: Sequence[Any], seed: int
) -> tuple[Call, list[PromptImage]]:
    """A call that extends another one."""
    new, added = random_call(parts, seed)
    both = [*images, *(x.moved(call.length) for x in added)]
    return dataclasses.replace(
        new,
        prompt=np.concatenate([call.ids, new.prompt]),
        image_spans=tuple((x.start, x.end) for x in both),
        images=tuple(x.image.part for x in both),
        parent=call,
    ), both


def trajectory_of(*calls: Call) -> Trajectory:
    turns = tuple(Turn((call,), assistant("a"), (user("b"),), 0.0) for call in calls)
    return Trajectory((user("o"),), turns)


def mixed_episodes(policy: Any, count: int = 6) -> list[tuple[Trajectory, list[Any]]]:
    """Episodes with and without images, some of a second turn; with the images of each call."""
    picture = functools.partial(model_image, policy)
    episodes = []
    for i in range(count):
        first, images = random_call(
            [[4 + i], [2, picture(12, 9 + i, i), 3], [picture(9, 24, i), picture(8, 8, 1), 2]][
                i % 3
            ],
            i,
        )
        second, all_images = extended(first, images, [[2], [1, picture(16, 8, i), 2]][i % 2], i)
        episodes.append((trajectory_of(first, second), [images, all_images]))
    return episodes


def sequences_of_all(episodes: Sequence[tuple[Trajectory, Any]]) -> list[TrainingSequence]:
    return [x for trajectory, _ in episodes for x in sequences_of(trajectory)]
