"""An agent program: python -m agentrl_jax.envs.programs.player plays one episode, or with --pool episodes without end.

It knows OpenAI's client and its world. `OPENAI_BASE_URL` and `OPENAI_API_KEY` say who answers, AGENTRL_ENVIRONMENT, _OPTIONS and
_SEED which world it is, and AGENTRL_URL where rewards are posted. Of a pool each program plays many episodes side by side.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import httpx2
from openai import AsyncOpenAI

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax.environment import make
from agentrl_jax.messages import Message

AT_ONCE = 32


async def play(client: AsyncOpenAI, post: httpx2.AsyncClient, task: Mapping[str, Any]) -> None:
    """One episode: ask, act, and post the reward of every turn."""
    env = make(task["environment"], task["options"])
    opening, _ = env.reset(seed=task["seed"])
    messages: list[Any] = [message.to_dict() for message in opening]
    done = False
    while not done:
        reply = await client.chat.completions.create(model="player", messages=messages)
        text = reply.choices[0].message.content or ""
        observation, reward, terminated, truncated, info = env.step(Message("assistant", text))
        done = terminated or truncated
        scored = {
            "rewards": info.get("rewards", {"task": reward}),
            "call": reply.id,
            "success": info.get("success"),
            "truncated": truncated,
            "final": done,
        }
        headers = {"Authorization": f"Bearer {client.api_key}"}
        (await post.post(f"{task['url']}/reward", json=scored, headers=headers)).raise_for_status()
        messages += [{"role": "assistant", "content": text}, *(message.to_dict() for message in observation)]


async def one() -> None:
    """The episode that the variables describe."""
    told = {name: json.loads(os.environ[f"AGENTRL_{name.upper()}"]) for name in ("options", "seed")}
    task = {**told, "environment": os.environ["AGENTRL_ENVIRONMENT"], "url": os.environ["AGENTRL_URL"]}
    async with AsyncOpenAI() as client, httpx2.AsyncClient(timeout=60) as post:
        await play(client, post, task)


async def pool() -> None:
    """Episodes as the server has them, until it is gone."""
    url, key = os.environ["AGENTRL_URL"], os.environ["OPENAI_API_KEY"]

    async def again(client: AsyncOpenAI, post: httpx2.AsyncClient) -> None:
        while True:
            given = await post.post(f"{url}/episodes", headers={"Authorization": f"Bearer {key}"})
            given.raise_for_status()
            if given.status_code == 200:
                task = given.json()
                await play(client.with_options(base_url=f"{task['url']}/v1", api_key=task["api_key"]), post, task)

    async with AsyncOpenAI() as client, httpx2.AsyncClient(timeout=None) as post:
        await asyncio.gather(*(again(client, post) for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(pool() if sys.argv[1:] == ["--pool"] else one())
