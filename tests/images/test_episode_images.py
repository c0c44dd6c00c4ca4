"""Images in episodes: what a context shows, what a session records, and what cannot be shown."""

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from support.fake_engines import FakeEngine
from support.fixtures import make_call
from support.vision_families import VISION_FAMILIES
from support.vision_policies import picture

from agentrl_jax.algorithms.advantages.transforms import shared_prefix_key
from agentrl_jax.algorithms.contexts.history_views import LastImages
from agentrl_jax.context import ContextManager, FullHistory
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.images.loading import ImageReader, crop, image_part
from agentrl_jax.images.prompts import refuse_images
from agentrl_jax.learner.sequences import collate, make_credit_inputs
from agentrl_jax.messages import ImagePart, Message, TextPart, assistant
from agentrl_jax.rollout.agent import Agent, PromptBuilder
from agentrl_jax.rollout.agent_session import AgentSession, EpisodeStart
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.trajectories import Call, Group, Sampling, Trajectory, Turn

RENDERER = VISION_FAMILIES["Qwen3-VL"].renderer()


def agent(context: ContextManager) -> Agent:
    return Agent("policy", RENDERER, context, Sampling(budget=4))


def message(seed: int) -> Message:
    return Message("user", (image_part(picture(30, 30, seed)), TextPart(f"look {seed}")))


def prompts(context: ContextManager, num_turns: int) -> list[tuple[Any, np.ndarray, Any]]:
    """Images, ids and parent of each prompt of an episode whose every observation has an image."""
    builder = PromptBuilder(agent(context), (message(0),))
    turns: list[Turn] = []
    results = []
    for i in range(num_turns):
        ids, parent = builder.action_prompt(turns)
        results.append((builder.images, ids, parent))
        spans = tuple((x.start, x.end) for x in builder.images)
        parts = tuple(x.image.part for x in builder.images)
        call = make_call(ids, RENDERER.action_ids(assistant("go")))
        call = dataclasses.replace(call, image_spans=spans, images=parts)
        builder.add_call(call, assistant("go"))
        turns.append(Turn((call,), assistant("go"), (message(i + 1),), 0.0))
    return results


def test_a_growing_history_shows_all_images_and_extends():
    for i, (images, ids, parent) in enumerate(prompts(FullHistory(), 4)):
        assert [x.image.part for x in images] == [message(j).images[0] for j in range(i + 1)]
        assert (parent is not None) == (i > 0)
        rendered = RENDERER.render(
            [m for j in range(i) for m in (message(j), assistant("go"))] + [message(i)]
        )
        assert ids.tolist() == rendered.ids.tolist()
        assert [(x.start, x.end) for x in images] == list(rendered.image_spans)


def test_the_last_images_are_shown_and_a_text_for_older_ones():
    for i, (images, ids, parent) in enumerate(prompts(LastImages(2, "[old]"), 5)):
        expected = [message(j).images[0] for j in range(max(0, i - 1), i + 1)]
        assert [x.image.part for x in images] == expected
        text = RENDERER.codec.decode(tuple(ids.tolist()))
        assert text.count("[old]") == max(0, i - 1)
        # An image that becomes a text starts a new training sequence.
        assert (parent is not None) == (i == 1)


def test_a_tool_crops_what_the_model_saw_smaller():
    """The message keeps all pixels, of which the model's budget shows a few."""
    large = image_part(picture(400, 300, 1))
    scaled = RENDERER.render([Message("user", (large,))]).images[0].image
    assert scaled.frames.shape[1] < 100
    closer = image_part(crop(ImageReader().pixels(large), 0.0, 0.0, 0.1, 0.1))
    assert np.array_equal(ImageReader().pixels(closer), picture(400, 300, 1)[:40, :30])


class EmptyEngine(FakeEngine):
    """Answers every prompt with its stop token, and records what it was shown."""

    def __init__(self) -> None:
        self.images: list[Any] = []

    def submit(
        self, ids: Any, sampling: Any, key: Any, parent: Any = None, images: Sequence[Any] = ()
    ) -> Any:
        self.images.append(images)
        future: Future[Call] = Future()
        call = make_call(ids, np.asarray(RENDERER.stop_ids, np.int32))
        spans = tuple((x.start, x.end) for x in images)
        parts = tuple(x.image.part for x in images)
        future.set_result(dataclasses.replace(call, image_spans=spans, images=parts))
        return future


def test_an_episode_with_a_damaged_image_fails_as_an_environment_does():
    damaged = Message("user", (ImagePart("data:image/png;base64,AAAA"), TextPart("look")))

    async def act() -> None:
        start = EpisodeStart((damaged,))
        session = AgentSession(agent(FullHistory()), EmptyEngine(), (0,), start, 10.0)
        await session.act()

    with pytest.raises(EnvironmentFailure, match="no image of a known format") as failure:
        asyncio.run(act())
    assert failure.value.kind == "nonsense"


def test_a_session_gives_its_engine_the_images():
    engine = EmptyEngine()

    async def act() -> None:
        start = EpisodeStart((message(0),))
        session = AgentSession(agent(FullHistory()), engine, (0,), start, 10.0)
        await session.act()
        session.observe(assistant(""), (message(1),), 0.0, False, False, {})
        await session.act()

    asyncio.run(act())
    assert [[x.image.part for x in images] for images in engine.images] == [
        [*message(0).images], [*message(0).images, *message(1).images]
    ]  # fmt: skip


def demonstration(seed: int) -> Trajectory:
    turn = Turn((), assistant("go"), (message(seed + 1),), 1.0)
    trajectory = Trajectory((message(seed),), (turn,), agent="policy")
    return add_demonstration_calls(trajectory, agent(FullHistory()))


def test_demonstrations_record_their_images():
    (call,) = demonstration(3).calls
    assert call.images == message(3).images and len(call.image_spans) == 1


def test_tokens_after_other_images_are_not_shared():
    """Equal ids: the pictures have one size."""
    same, other = demonstration(3), demonstration(4)
    relabeled = other.replace(
        turns=tuple(
            dataclasses.replace(
                turn,
                calls=tuple(
                    dataclasses.replace(c, prompt=d.prompt) for c, d in zip(turn.calls, same.calls)
                ),
            )
            for turn in other.turns
        )
    )
    for second, shared in ((same, True), (relabeled, False)):
        groups = [Group("t", (same, second))]
        key = shared_prefix_key(make_credit_inputs(groups, collate(groups)))
        n = len(key) // 2
        assert (key[:n] == key[n:]).all() == shared


def test_what_reads_tokens_alone_refuses_images():
    with pytest.raises(UserError, match="an utterance critic sees no images"):
        refuse_images(demonstration(0).calls, "an utterance critic")
