"""The example of an agent program: what it posts, and that it ends an episode that the run cuts."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest

from agentrl_jax.envs.programs import player

TASK = {
    "environment": "agentrl_jax.envs:agentrl/Chain-v0",
    "options": {"length": 4},
    "seed": 1,
    "url": "http://server/episodes/1",
}


def refusal(code: str) -> openai.BadRequestError:
    response = httpx2.Response(400, request=httpx2.Request("POST", "http://server"))
    return openai.BadRequestError("refused", response=response, body={"code": code})


def rewards_posted(*replies: str | Exception) -> list[dict[str, Any]]:
    """The bodies that one episode posts, where the server answers its requests by these."""
    left, posted = list(replies), []

    async def create(**_: Any) -> Any:
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        message = SimpleNamespace(content=reply)
        return SimpleNamespace(id=f"call-{len(left)}", choices=[SimpleNamespace(message=message)])

    async def post(url: str, json: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        assert url == f"{TASK['url']}/reward" and headers == {"Authorization": "Bearer key"}
        posted.append(json)
        return httpx2.Response(200, request=httpx2.Request("POST", url))

    completions = SimpleNamespace(create=create)
    client: Any = SimpleNamespace(api_key="key", chat=SimpleNamespace(completions=completions))
    http_client: Any = SimpleNamespace(post=post)
    asyncio.run(player.play_episode(client, http_client, TASK))
    return posted


def test_every_turn_has_a_reward_and_the_last_one_the_outcome():
    posted = rewards_posted(*["x"] * 8)  # none is a letter, until the horizon
    assert [body["final"] for body in posted] == [False] * 7 + [True]
    assert [body["call"] for body in posted] == [f"call-{i}" for i in range(7, -1, -1)]
    assert posted[-1]["success"] is False and posted[-1]["truncated"]


@pytest.mark.parametrize("code", player.LIMIT_CODES)
def test_an_episode_that_the_run_cuts_ends_without_an_outcome(code: str):
    first, last = rewards_posted("x", refusal(code))
    assert first["rewards"] == {"outcome": 0.0} and not first["final"]
    assert last == {"reward": 0.0, "final": True}


def test_another_refusal_is_an_error():
    with pytest.raises(openai.BadRequestError):
        rewards_posted("x", refusal("messages"))
