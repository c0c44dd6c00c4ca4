"""A served checkpoint answers OpenAI's client, caches no conversation, and records no episode."""

import asyncio
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

openai = pytest.importorskip(
    "openai", reason="openai is not installed: pip install 'agentrl_jax[dev]'"
)
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from support.small_runs import rollout_source, small_experiment  # noqa: E402
from support.vision_policies import picture, vision_config  # noqa: E402

from agentrl_jax import models  # noqa: E402
from agentrl_jax.errors import UserError  # noqa: E402
from agentrl_jax.images.loading import image_part  # noqa: E402
from agentrl_jax.images.videos import video_part  # noqa: E402
from agentrl_jax.launch.api_keys import resolve_api_key  # noqa: E402
from agentrl_jax.launch.serving import (  # noqa: E402
    served_from_folder,
    served_from_run,
    start_server,
)
from agentrl_jax.learner.checkpoint import PhaseCheckpointer  # noqa: E402
from agentrl_jax.learner.train_state import TrainState  # noqa: E402
from agentrl_jax.messages import ImagePart  # noqa: E402
from agentrl_jax.models.decoder import DecoderConfig  # noqa: E402
from agentrl_jax.models.tokenizers import character_tokenizer  # noqa: E402
from agentrl_jax.models.vision.tokenizer import vision_byte_tokenizer  # noqa: E402
from agentrl_jax.storage import config_json  # noqa: E402

SHAPE = DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)


def model_folder(folder: Path) -> Path:
    tokenizer = character_tokenizer(["abc assistant user\n"], chat=True)
    policy = SHAPE.build(len(tokenizer))
    models.save(folder, policy, policy.init(jax.random.key(0)))
    tokenizer.save_pretrained(folder)
    return folder


def run_folder(folder: Path) -> Path:
    """A run folder as training writes it: a config, a tokenizer and a checkpoint."""
    experiment, tokenizer = small_experiment(rollout_source()), character_tokenizer(["abc\n"])
    config_json.bind_run_dir(folder, experiment)
    tokenizer.save_pretrained(folder / "tokenizer")
    policy = experiment.policy.build(len(tokenizer))
    keeper = PhaseCheckpointer(folder / "checkpoints" / "rl")
    state = TrainState(
        step=jnp.int32(1),
        params=policy.init(jax.random.key(1)),
        opt_state=(jnp.zeros(1),),
        key=jax.random.key(0),
    )
    keeper.save(1, state, {})
    keeper.close()
    return folder


def test_a_model_folder_is_served_to_clients_with_the_key(tmp_path: Path):
    served = served_from_folder(model_folder(tmp_path), "float32", positions=64, rows=2)

    async def ask() -> None:
        async with (
            start_server(served, "mine", "127.0.0.1", 0, "secret") as url,
            openai.AsyncOpenAI(base_url=url, api_key="secret") as client,
        ):
            assert [model.id async for model in client.models.list()] == ["mine"]
            chat: Any = {
                "model": "mine",
                "messages": [{"role": "user", "content": "abc"}],
                "temperature": 0,
                "max_tokens": 5,
            }
            replies = await asyncio.gather(
                *(client.chat.completions.create(**chat) for _ in range(5))
            )
            assert (
                len({reply.choices[0].message.content for reply in replies}) == 1
            )  # greedy, so that released calls make no difference
            text = await client.completions.create(
                model="other", prompt="ab", max_tokens=4, temperature=0
            )
            assert (
                text.choices[0].finish_reason in ("stop", "length")
                and text.usage.prompt_tokens == 2
            )
            with pytest.raises(openai.NotFoundError, match="nothing is trained here"):
                await client.post("/../end", cast_to=object)
            with pytest.raises(openai.AuthenticationError):
                await client.with_options(api_key="sk-wrong").models.list()
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await client.completions.create(model="mine", prompt="a" * 64)

    asyncio.run(ask())


def vision_folder(folder: Path) -> Path:
    """A random Qwen3-VL, with the preprocessing of its tower's patches."""
    tokenizer = vision_byte_tokenizer(videos=True)
    policy = vision_config("Qwen3-VL", qk_norm=True).build(len(tokenizer))
    models.save(folder, policy, policy.init(jax.random.key(0)))
    tokenizer.save_pretrained(folder)
    settings = {"patch_size": 4, "min_pixels": 64, "max_pixels": 32 * 32}
    for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
        (folder / name).write_text(json.dumps(settings))
    return folder


def test_a_folder_with_a_vision_tower_is_shown_images_and_videos(tmp_path: Path):
    served = served_from_folder(vision_folder(tmp_path), "float32", positions=128, rows=1)
    assert served.engine.image_patches == (16, 64)

    def message(*pictures: Any) -> dict[str, Any]:
        parts = [{"type": "image_url", "image_url": {"url": x.url}} for x in pictures]
        return {"role": "user", "content": [*parts, {"type": "text", "text": "What is it?"}]}

    async def ask() -> None:
        async with (
            start_server(served, "mine", "127.0.0.1", 0, "secret") as url,
            openai.AsyncOpenAI(base_url=url, api_key="secret", max_retries=0) as client,
        ):
            chat: Any = {"model": "mine", "temperature": 0, "max_tokens": 8, "logprobs": True}
            pictures = [image_part(picture(90, 60, seed)) for seed in (1, 2)]
            replies = [
                await client.chat.completions.create(messages=[message(*sent)], **chat)
                for sent in ([], pictures[:1], pictures[1:], pictures)
            ]
            # 90 x 60 pixels within 32 x 32: 32 x 24 pixels, 4 x 3 tokens, and two that enclose them
            lengths = [reply.usage.prompt_tokens for reply in replies]
            assert [n - lengths[0] for n in lengths] == [0, 14, 14, 28]
            with pytest.raises(openai.BadRequestError, match="nothing is downloaded"):
                bad = message(ImagePart("https://example.invalid/a.png"))
                await client.chat.completions.create(messages=[bad], **chat)
            clip = video_part([picture(16, 16, seed) for seed in range(4)], [0, 1, 2, 3])
            with_video: Any = message()
            with_video["content"].insert(0, clip.to_dict())
            reply = await client.chat.completions.create(messages=[with_video], **chat)
            # Two temporal patches: a time of 13 bytes, 2 x 2 tokens and two that enclose them.
            assert reply.usage.prompt_tokens - lengths[0] == 2 + 2 * (13 + 4 + 2)

    asyncio.run(ask())


@pytest.mark.slow
def test_a_run_folder_is_served_with_the_agent_of_its_config(tmp_path: Path):
    served = served_from_run(run_folder(tmp_path), None, None, positions=24, rows=0)
    assert (
        served.engine.positions == 24
        and served.agent.sampling.budget == 24
        and not served.agent.trainable
    )
    assert served.engine.rows == small_experiment(rollout_source()).engine.rows

    async def ask() -> str:
        async with (
            start_server(served, "policy", "127.0.0.1", 0, "key") as url,
            openai.AsyncOpenAI(base_url=url, api_key="key") as client,
        ):
            reply = await client.chat.completions.create(
                model="a", messages=[{"role": "user", "content": "ab\n"}], temperature=0
            )
            return reply.choices[0].message.content

    assert set(asyncio.run(ask())) <= set("abc<unkpadeos>")


def test_a_folder_that_cannot_be_served_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"config\.json"):
        served_from_run(tmp_path, None, None, 0, 0)
    with pytest.raises(UserError, match=r"config\.json"):
        served_from_folder(tmp_path, "float32", 0, 0)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UserError, match="NO_SUCH_KEY"):
        resolve_api_key("NO_SUCH_KEY")
    assert resolve_api_key("") != resolve_api_key("") and resolve_api_key("").startswith("sk-")
