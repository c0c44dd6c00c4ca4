"""An agent program: python -m agentrl_jax.envs.programs.player plays one episode, with --pool many.

It knows the OpenAI client and its environment. `OPENAI_BASE_URL` and `OPENAI_API_KEY` name the
server, AGENTRL_ENVIRONMENT, _OPTIONS and _SEED the environment, and AGENTRL_URL the address that
rewards are posted to. Each program of a pool plays many episodes concurrently.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import httpx2
from openai import AsyncOpenAI, BadRequestError

import agentrl_jax.envs  # noqa: F401  registers the environments
from agentrl_jax.environment import make
from agentrl_jax.messages import Message

CONCURRENT_EPISODES = 32
LIMIT_CODES = ("episode_limit", "context_length_exceeded")  # errors of a run that cuts episodes


async def play_episode(
    client: AsyncOpenAI, http_client: httpx2.AsyncClient, task: Mapping[str, Any]
) -> None:
    """Play one episode and post the reward of every turn; an episode that the run cuts ends."""
    headers = {"Authorization": f"Bearer {client.api_key}"}

    async def post_reward(body: dict[str, Any]) -> None:
        response = await http_client.post(f"{task['url']}/reward", json=body, headers=headers)
        response.raise_for_status()

    env = make(task["environment"], task["options"])
    opening, _ = env.reset(seed=task["seed"])
    messages: list[Any] = [message.to_dict() for message in opening]
    done = False
    while not done:
        try:
            reply = await client.chat.completions.create(model="player", messages=messages)
        except BadRequestError as error:
            if error.code not in LIMIT_CODES:
                raise
            await post_reward({"reward": 0.0, "final": True})
            return
        text = reply.choices[0].message.content or ""
        observation, reward, terminated, truncated, info = env.step(Message("assistant", text))
        done = terminated or truncated
        await post_reward(
            {
                "rewards": info.get("rewards", {"task": reward}),
                "call": reply.id,
                "success": info.get("success"),
                "truncated": truncated,
                "final": done,
            }
        )
        messages += [
            {"role": "assistant", "content": text},
            *(message.to_dict() for message in observation),
        ]


async def run_single_episode() -> None:
    """The episode that the environment variables describe."""
    settings = {
        name: json.loads(os.environ[f"AGENTRL_{name.upper()}"]) for name in ("options", "seed")
    }
    task = {
        **settings,
        "environment": os.environ["AGENTRL_ENVIRONMENT"],
        "url": os.environ["AGENTRL_URL"],
    }
    async with AsyncOpenAI() as client, httpx2.AsyncClient(timeout=60) as post:
        await play_episode(client, post, task)


async def run_pool() -> None:
    """Episodes from the server, until it is gone."""
    url, key = os.environ["AGENTRL_URL"], os.environ["OPENAI_API_KEY"]

    async def play_repeatedly(client: AsyncOpenAI, http_client: httpx2.AsyncClient) -> None:
        while True:
            response = await http_client.post(
                f"{url}/episodes", headers={"Authorization": f"Bearer {key}"}
            )
            response.raise_for_status()
            if response.status_code == 200:
                task = response.json()
                await play_episode(
                    client.with_options(base_url=f"{task['url']}/v1", api_key=task["api_key"]),
                    http_client,
                    task,
                )

    async with AsyncOpenAI() as client, httpx2.AsyncClient(timeout=None) as post:
        await asyncio.gather(*(play_repeatedly(client, post) for _ in range(CONCURRENT_EPISODES)))


if __name__ == "__main__":
    asyncio.run(run_pool() if sys.argv[1:] == ["--pool"] else run_single_episode())
