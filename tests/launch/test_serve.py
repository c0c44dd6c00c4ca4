"""A checkpoint that is served answers OpenAI's client, forgets what it was asked, and is nobody's episode."""

import asyncio
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

openai = pytest.importorskip("openai", reason="openai is not installed: pip install 'agentrl_jax[dev]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'agentrl_jax[serve]'")

from small_runs import rollouts, small_run  # noqa: E402

from agentrl_jax import configfile, models  # noqa: E402
from agentrl_jax.checkpoint import Keeper  # noqa: E402
from agentrl_jax.errors import UserError  # noqa: E402
from agentrl_jax.launch.serving import key_of, of_folder, of_run, serving  # noqa: E402
from agentrl_jax.learner import TrainState  # noqa: E402
from agentrl_jax.models.decoder import DecoderConfig  # noqa: E402
from agentrl_jax.models.tokenizers import character_tokenizer  # noqa: E402

SHAPE = DecoderConfig(layers=1, width=16, hidden=32, heads=2, kv_heads=1, head_size=8)


def model_folder(folder: Path) -> Path:
    tokenizer = character_tokenizer(["abc assistant user\n"], chat=True)
    policy = SHAPE.build(len(tokenizer))
    models.save(folder, policy, policy.init(jax.random.key(0)))
    tokenizer.save_pretrained(folder)
    return folder


def run_folder(folder: Path) -> Path:
    """As training leaves it: a config, a tokenizer and a checkpoint."""
    experiment, tokenizer = small_run(rollouts()), character_tokenizer(["abc\n"])
    configfile.claim(folder, experiment)
    tokenizer.save_pretrained(folder / "tokenizer")
    policy = experiment.policy.build(len(tokenizer))
    keeper = Keeper(folder / "checkpoints" / "rl")
    state = TrainState(step=jnp.int32(1), params=policy.init(jax.random.key(1)), opt_state=(jnp.zeros(1),), key=jax.random.key(0))
    keeper.save(1, state, {})
    keeper.close()
    return folder


def test_a_model_folder_is_served_to_whoever_has_the_key(tmp_path: Path):
    served = of_folder(model_folder(tmp_path), "float32", positions=64, rows=2)

    async def ask() -> None:
        async with (
            serving(served, "mine", "127.0.0.1", 0, "secret") as url,
            openai.AsyncOpenAI(base_url=url, api_key="secret") as client,
        ):
            assert [model.id async for model in client.models.list()] == ["mine"]
            chat: Any = {"model": "mine", "messages": [{"role": "user", "content": "abc"}], "temperature": 0, "max_tokens": 5}
            replies = await asyncio.gather(*(client.chat.completions.create(**chat) for _ in range(5)))
            assert len({reply.choices[0].message.content for reply in replies}) == 1  # greedily, and what is forgotten is no matter
            text = await client.completions.create(model="other", prompt="ab", max_tokens=4, temperature=0)
            assert text.choices[0].finish_reason in ("stop", "length") and text.usage.prompt_tokens == 2
            with pytest.raises(openai.NotFoundError, match="nothing is trained here"):
                await client.post("/../end", cast_to=object)
            with pytest.raises(openai.AuthenticationError):
                await client.with_options(api_key="sk-wrong").models.list()
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await client.completions.create(model="mine", prompt="a" * 64)

    asyncio.run(ask())


def test_a_run_folder_is_served_as_its_config_has_it_speak(tmp_path: Path):
    served = of_run(run_folder(tmp_path), None, positions=24, rows=0)
    assert served.engine.positions == 24 and served.agent.sampling.budget == 24 and not served.agent.trainable
    assert served.engine.rows == small_run(rollouts()).engine.rows

    async def ask() -> str:
        async with serving(served, "policy", "127.0.0.1", 0, "key") as url, openai.AsyncOpenAI(base_url=url, api_key="key") as client:
            reply = await client.chat.completions.create(model="a", messages=[{"role": "user", "content": "ab\n"}], temperature=0)
            return reply.choices[0].message.content

    assert set(asyncio.run(ask())) <= set("abc<unkpadeos>")


def test_what_cannot_be_served_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match=r"config\.json"):
        of_run(tmp_path, None, 0, 0)
    with pytest.raises(UserError, match=r"config\.json"):
        of_folder(tmp_path, "float32", 0, 0)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UserError, match="NO_SUCH_KEY"):
        key_of("NO_SUCH_KEY")
    assert key_of("") != key_of("") and key_of("").startswith("sk-")
