"""Agent programs send images as OpenAI's clients do, and the policy sees them."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import openai
import pytest
from PIL import Image
from support.capture_server import CaptureFixture, capture_fixture
from support.vision_policies import picture, processor_of, vision_config

from agentrl_jax.context import FullHistory
from agentrl_jax.images.loading import data_url, image_part
from agentrl_jax.images.prompts import VIDEO, qwen3_vl_chat_images
from agentrl_jax.images.videos import video_part
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.messages import ImagePart, VideoPart
from agentrl_jax.models.vision.tokenizer import vision_byte_tokenizer
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Call, Sampling

TOKENIZER = vision_byte_tokenizer(videos=True)


@pytest.fixture(scope="module")
def capture() -> Iterator[CaptureFixture]:
    policy = vision_config("Qwen3-VL").build(len(TOKENIZER))
    config = EngineConfig(
        rows=2, positions=256, prefill_chunk=32, batching_delay=0.0, image_patches=(64,)
    )
    renderer = ChatRenderer(TOKENIZER, images=qwen3_vl_chat_images(processor_of(policy)))
    agent = Agent("policy", renderer, FullHistory(), Sampling(budget=6))
    engine = LocalEngine(policy, config, policy.init(jax.random.key(0)))
    with contextlib.closing(engine), capture_fixture(engine, agents={"policy": agent}) as started:
        yield started


def client_of(capture: CaptureFixture, session: Any) -> Any:
    client = openai.OpenAI(
        base_url=f"{capture.server.url_of(session)}/v1", api_key=session.secret, max_retries=0
    )
    capture.clients.append(client)
    return client


def user(*parts: str | ImagePart) -> dict[str, Any]:
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else part.to_dict()
        for part in parts
    ]
    return {"role": "user", "content": content}


def calls_of(capture: CaptureFixture, session: Any) -> list[Call]:
    return [node.call for node in session._tree.nodes]


def test_a_conversation_with_images_extends_its_calls(capture: CaptureFixture):
    session = capture.session()
    client = client_of(capture, session)
    first, second = (image_part(picture(12, 12, seed)) for seed in (1, 2))
    messages: list[Any] = [user(first, "What is it?")]
    answer = client.chat.completions.create(model="a", messages=messages).choices[0].message
    messages += [{"role": "assistant", "content": answer.content}, user("And this?", second)]
    client.chat.completions.create(model="a", messages=messages)
    first_call, second_call = calls_of(capture, session)
    assert (
        first_call.images == (first,)
        and second_call.images == (first, second)
        and second_call.parent is first_call
    )
    assert all(np.isfinite(call.sampler_logp).all() for call in (first_call, second_call))


def test_the_same_words_with_another_image_are_another_prompt(capture: CaptureFixture):
    session = capture.session()
    client = client_of(capture, session)
    answer = client.chat.completions.create(
        model="a", messages=[user(image_part(picture(12, 12, 1)), "x")]
    )
    other = [
        user(image_part(picture(12, 12, 2)), "x"),
        {"role": "assistant", "content": answer.choices[0].message.content},
        user("y"),
    ]
    client.chat.completions.create(model="a", messages=other)
    first_call, second_call = calls_of(capture, session)
    assert second_call.parent is None and not second_call.extends(first_call)


def test_a_program_may_send_videos(capture: CaptureFixture):
    """A GIF in the part that vLLM takes, and frames with times of their own."""
    session = capture.session()
    frames = [picture(12, 12, i) for i in range(4)]
    file = io.BytesIO()
    first, *others = map(Image.fromarray, frames)
    first.save(file, "GIF", save_all=True, append_images=others, duration=500)
    gif, timed = VideoPart(data_url(file.getvalue(), "gif")), video_part(frames, [3, 4, 5, 6])
    client_of(capture, session).chat.completions.create(
        model="a", messages=[user("look", gif), user(timed, "x")]
    )
    (call,) = calls_of(capture, session)
    assert [replace(part, temporal_patch=None) for part in call.images] == [gif, gif, timed, timed]
    text = str(TOKENIZER.decode(call.prompt))
    assert re.findall(r"<([\d.]+) seconds>", text) == ["0.2", "1.2", "3.5", "5.5"]
    assert text.count(VIDEO) == sum(end - start for start, end in call.image_spans) > 4


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (user(ImagePart("https://example.invalid/a.png")), "nothing is downloaded"),
        (user(ImagePart("/etc/passwd")), "is a file"),
        (user(ImagePart("data:image/png;base64,AAAA")), "no image of a known format"),
        (user(image_part(picture(201, 1, 0))), "more than 200 times"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "must be"),
        ({"role": "user", "content": [{"type": "audio"}]}, "must be"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": 3}}]}, "url"),
        ({"role": "user", "content": [{"type": "video_url"}]}, "video_url must be"),
        (user(VideoPart("data:video/mp4;base64,AAAA")), "needs a decoder"),
        (user(VideoPart(image_part(picture(9, 9, 0)).url)), "at least 2 frames, not 1"),
        (
            {
                "role": "user",
                "content": [{"type": "video_url", "video_url": {"url": "data:", "seconds": ["0"]}}],
            },
            "list of numbers",
        ),
        (
            {"role": "system", "content": [VideoPart("data:").to_dict()]},
            "holds a video, which only",
        ),
        ({"role": "system", "content": [image_part(picture(9, 9, 0)).to_dict()]}, "only a user"),
    ],
    ids=range(13),
)
def test_what_is_no_image_is_refused(capture: CaptureFixture, message: Any, expected: str):
    client = client_of(capture, capture.session())
    with pytest.raises(openai.BadRequestError, match=expected):
        client.chat.completions.create(model="a", messages=[message])
