"""NeMo Gym's resources servers against the loop of its simple agent, which is restated here."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from support.nemo_gym_server import nemo_gym_server

import agentrl_jax.envs  # noqa: F401
from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import Message, ToolCall

TOOL = {
    "type": "function",
    "name": "add",
    "description": "Adds to the counter.",
    "parameters": {"type": "object", "properties": {"count": {"type": "integer"}}},
    "strict": True,
}
CRASH = {"type": "function", "name": "crash", "parameters": {"type": "object"}}


def row(start: int, goal: int, **fields: Any) -> dict[str, Any]:
    messages = [
        {"role": "developer", "content": "Count."},
        {"role": "user", "content": [{"type": "input_text", "text": f"From {start} to {goal}."}]},
    ]
    params = {"input": messages, "tools": [TOOL, CRASH]}
    return {"responses_create_params": params, "start": start, "goal": goal, **fields}


ROWS = [row(i, i + 3) for i in range(5)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with nemo_gym_server() as address:
        yield address


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(x) + "\n" for x in ROWS))
    return str(file)


def client(url: str, path: str, **options: Any) -> Environment:
    return make("agentrl/NemoGym-v0", {"url": url, "path": path, **options})


def adds(*counts: Any) -> Message:
    calls = [ToolCall(f"call_{i}", "add", json.dumps({"count": n})) for i, n in enumerate(counts)]
    return Message("assistant", "", tuple(calls))


def reference_episode(
    http: httpx2.Client, task: Any, actions: list[Message]
) -> tuple[list[list[str]], float]:
    """The texts of the tools after each action, and the reward, as the simple agent gets them."""
    outputs: list[dict[str, Any]] = []
    texts = []
    http.cookies.clear()
    http.post("/seed_session", json=task).raise_for_status()
    for action in actions:
        answers = []
        if action.text:
            outputs.append({"type": "message", "role": "assistant", "content": []})
        for call in action.tool_calls:
            outputs.append({"type": "function_call", "call_id": call.id})
            answer = http.post(f"/{call.name}", json=json.loads(call.arguments)).text
            outputs.append({"type": "function_call_output", "output": answer})
            answers.append(answer)
        texts.append(answers)
    verified = http.post("/verify", json={**task, "response": {"output": outputs}})
    return texts, verified.raise_for_status().json()["reward"]


def test_messages_and_rewards_are_those_of_the_simple_agent(url: str, path: str):
    env, http, rewards = client(url, path), httpx2.Client(base_url=url), []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        actions = [
            adds(*rng.integers(-1, 4, size=int(rng.integers(1, 3))).tolist())
            for _ in range(int(rng.integers(0, 4)))
        ]
        actions.append(Message("assistant", "done"))
        texts, reward = reference_episode(http, ROWS[seed % 5], actions)
        opening, info = env.reset(seed=seed)
        start = seed % 5
        assert [(m.role, m.text) for m in opening] == [
            ("system", "Count."),
            ("user", f"From {start} to {start + 3}."),
        ]
        assert info["task_index"] == start and info["tools"][0]["function"]["name"] == "add"
        for action, answers in zip(actions, texts, strict=True):
            observation, gain, terminated, truncated, info = env.step(action)
            assert [m.text for m in observation] == answers
            assert [m.tool_call_id for m in observation] == [c.id for c in action.tool_calls]
        assert (gain, terminated, truncated) == (reward, True, False)
        assert info["success"] is (reward == 1.0) and "calls" in info["reward_components"]
        rewards.append(reward)
    assert 0 < np.mean(rewards) < 1
    http.close()
    env.close()


def test_two_environments_have_their_own_sessions(url: str, path: str):
    first, second = client(url, path), client(url, path)
    first.reset(seed=0)
    second.reset(seed=0)
    assert first.step(adds(3))[0][0].text == '{"value": 3}'
    assert second.step(adds(1))[0][0].text == '{"value": 1}'
    assert first.step("done")[1] == 1.0 and second.step("done")[1] == 0.0
    first.close()
    second.close()


def test_wrong_calls_are_answered(url: str, path: str):
    env = client(url, path, horizon=0)
    env.reset(seed=0)
    wrong = {
        "verify": ("{}", "", "there is no tool 'verify'"),
        "../verify": ("{}", "", "there is no tool '../verify'"),
        "add": ("{", "", "the arguments are no JSON"),
    }
    for name, (arguments, error, message) in wrong.items():
        call = ToolCall("c", name, arguments, error)
        (answer,), reward, terminated, *_ = env.step(Message("assistant", "", (call,)))
        assert message in answer.text and (reward, terminated) == (0.0, False)
    unread = Message("assistant", "", (ToolCall("c", "add", "x", "not closed"),))
    assert env.step(unread)[0][0].text == "Error: not closed"
    assert "count must be a number" in env.step(adds("x"))[0][0].text  # the server's own answer
    env.close()


def test_the_last_turn_is_verified_and_truncated(url: str, path: str):
    env = client(url, path, horizon=2)
    env.reset(seed=0)
    assert env.step(adds(1))[1:4] == (0.0, False, False)
    observation, reward, terminated, truncated, info = env.step(adds(2))
    assert observation[0].text == '{"value": 3}'
    assert (reward, terminated, truncated, info["success"]) == (1.0, False, True, False)
    env.close()


def test_failures_of_the_server_are_failures(url: str, tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row(0, 0, is_broken=True)) + "\n")
    env = client(url, str(file))
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match="the verifier failed"):
        env.step("done")
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure, match="answered 500"):
        env.step(Message("assistant", "", (ToolCall("c", "crash", "{}"),)))
    env.close()
    with pytest.raises(EnvironmentFailure, match="cannot be reached"):
        client("http://127.0.0.1:9", str(file)).reset(seed=0)


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"responses_create_params": {}}'])
def test_a_file_without_rows_is_one_sentence(text: str, tmp_path: Path):
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    with pytest.raises(UserError, match="has no rows of NeMo Gym"):
        client("http://a", str(file))
    with pytest.raises(UserError, match="has no rows of NeMo Gym"):
        client("http://a", str(tmp_path / "nothing"))
