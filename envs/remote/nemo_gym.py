"""`NemoGym`: tasks whose tools and verifier are a resources server of NeMo Gym."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from agentrl_jax.environment import Environment, Messages
from agentrl_jax.envs.options import check_no_options, checked_int
from agentrl_jax.envs.remote.response_items import (
    call_item,
    chat_tool,
    input_message,
    message_item,
    output_item,
)
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import Message, tool_result
from agentrl_jax.tool_servers.json_client import SessionClient


class NemoGym(Environment):
    """A row of a file is a task: the first messages, the tools and what the verifier needs.

    The loop is that of NeMo Gym's simple agent: a session is seeded, each call of a tool is a
    request whose answer is the tool's message, an answer without calls, or the last turn, is
    verified, and the verifier's number is the reward. A sample that it masks is a failure of the
    environment. The seed chooses the row; what the server draws itself, no seed determines.

    Args:
        url: of the resources server.
        path: of the JSON lines with `responses_create_params`.
        key_variable: the environment variable with the bearer token; empty: none.
        horizon: turns of the policy, after which the episode is verified and truncated; 0: endless.
        success_reward: an episode has succeeded where its reward is at least this.
        seconds: of a request.
        max_bytes: of a response.

    Raises:
        UserError: the file has no such row, or an option is wrong.
    """

    server_options: ClassVar[tuple[str, ...]] = ("url",)

    def __init__(
        self,
        url: str = "",
        path: str = "",
        key_variable: str = "",
        horizon: int = 10,
        success_reward: float = 1.0,
        seconds: float = 60.0,
        max_bytes: int = 2**24,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._client = SessionClient(url, key_variable, seconds, max_bytes)
        self._client.check()
        self._rows, self._success_reward = _rows(path), success_reward
        self._horizon = checked_int("horizon", horizon, 0, 2**31)
        self.rules = f"Tasks of {Path(path).name}, with the tools and the verifier of {url}."

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("NemoGym", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        self._row: Mapping[str, Any] = self._rows[seed % len(self._rows)]
        params = self._row["responses_create_params"]
        self._client.forget()
        self._client.post("/seed_session", self._row)
        self._items: list[dict[str, Any]] = []  # of the response so far
        tools = [tool for tool in params.get("tools") or () if tool.get("type") == "function"]
        self._names = {tool["name"] for tool in tools}
        messages = params["input"]
        messages = (
            [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        )
        opening = tuple(map(input_message, messages))
        info = {"task_index": seed % len(self._rows)}
        return opening, {**info, "tools": [chat_tool(tool) for tool in tools]} if tools else info

    def _step_message(self, message: Message) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        if message.text or not message.tool_calls:
            self._items.append(message_item(message.text, len(self._items)))
        answers = []
        for call in message.tool_calls:
            text = self._call(call.name, call.arguments, call.error)
            self._items += [call_item(call), output_item(call, text)]
            answers.append(tool_result(call, text))
        is_final = not message.tool_calls
        is_cut = not is_final and 0 < self._horizon <= len(self._step_history) + 1
        if not is_final and not is_cut:
            return tuple(answers), 0.0, False, False, {"tool_calls": len(answers)}
        reward, info = self._verify()
        info["success"] = is_final and reward >= self._success_reward
        return tuple(answers), reward, is_final, is_cut, info

    def _call(self, name: str, arguments: str, error: str | None) -> str:
        """What a tool answers, or what is wrong with a call."""
        if error or name not in self._names:
            return f"Error: {error or f'there is no tool {name!r:.80}'}"
        try:
            fields = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return "Error: the arguments are no JSON"
        return self._client.post_text(f"/{quote(name, safe='')}", fields)

    def _verify(self) -> tuple[float, dict[str, Any]]:
        params = self._row["responses_create_params"]
        response = {
            "id": "resp_0",
            "object": "response",
            "created_at": time.time(),
            "model": "policy",
            "output": self._items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": params.get("tools") or [],
        }
        data = self._client.post("/verify", {**self._row, "response": response})
        reward = data.get("reward") if isinstance(data, dict) else None
        if isinstance(reward, bool) or not isinstance(reward, int | float) or reward != reward:
            message = f"the answer of {self._client.url}/verify has no reward: {data!r:.300}"
            raise EnvironmentFailure(message, "nonsense")
        if data.get("mask_sample"):
            raise EnvironmentFailure(f"the verifier failed: {data.get('failure_reason')!s:.300}")
        parts = data.get("reward_components")
        return float(reward), {"reward_components": parts} if isinstance(parts, dict) else {}

    def close(self) -> None:
        """Close the connection; the session ends on the server by its own rules."""
        self._client.close()


def _rows(path: str) -> Sequence[Mapping[str, Any]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        wrong = [i for i, row in enumerate(rows) if "input" not in row["responses_create_params"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path!r} has no rows of NeMo Gym: {error!r:.200}") from error
    if wrong or not rows:
        raise UserError(f"{path!r} has no rows of NeMo Gym, or no input in the rows {wrong[:5]}")
    return rows
