"""`OpenEnv`: an environment of a server that speaks OpenEnv's JSON over a websocket."""

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from agentrl_jax.environment import Environment, Messages
from agentrl_jax.envs.options import check_no_options, checked_int
from agentrl_jax.envs.remote.websocket_client import WebsocketClient
from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.messages import user

_INVALID = "VALIDATION_ERROR"  # OpenEnv's code of an action that has not the form of its actions


class OpenEnv(Environment):
    """An environment of a server; one connection is one environment there.

    What the messages do not have, this environment cannot promise: the seed is sent with a reset,
    and a server may ignore it (then a fork, which is a replay, fails), and there is no truncation
    but that of `horizon`. An action that the server finds invalid is answered with its error and
    counts as a turn. What it does wrong else is a failure of the environment, and the episode is
    played again over another connection.

    Args:
        url: of the server, `http://...` or `ws://...`.
        key_variable: the environment variable with the bearer token; empty: none.
        action_field: the field of an action that is the policy's text; empty: the text is the
            action's fields in JSON.
        action_fields: further fields of each action.
        reset_fields: further fields of a reset.
        observation_fields: those of an observation that are shown; empty: all. One alone is shown
            without its name.
        instructions: shown before the first observation.
        success_reward: an episode that is done has succeeded where its return is at least this.
        horizon: turns before truncation; 0: as the server does.
        seconds: of a request.
        max_bytes: of an answer.

    Raises:
        UserError: the package websockets is missing, or an option is wrong.
    """

    server_options: ClassVar[tuple[str, ...]] = ("url",)

    def __init__(
        self,
        url: str = "",
        key_variable: str = "",
        action_field: str = "message",
        action_fields: Mapping[str, Any] | None = None,
        reset_fields: Mapping[str, Any] | None = None,
        observation_fields: Sequence[str] = (),
        instructions: str = "",
        success_reward: float = 1.0,
        horizon: int = 0,
        seconds: float = 60.0,
        max_bytes: int = 2**24,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._client = WebsocketClient(url, "/ws", key_variable, seconds, max_bytes)
        self._action_field, self._action_fields = action_field, dict(action_fields or {})
        self._reset_fields, self._shown_fields = dict(reset_fields or {}), tuple(observation_fields)
        self._instructions, self._success_reward = instructions, success_reward
        self._horizon = checked_int("horizon", horizon, 0, 2**31)
        self.rules = f"{instructions}\nAn environment of {url}; your text is the action."
        self._return = 0.0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("OpenEnv", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        data = self._call("reset", {"seed": seed % 2**31, **self._reset_fields})
        text, _, is_done = self._result(data)
        if is_done:
            raise self._failure("is done after its reset")
        self._return = 0.0
        return (user(f"{self._instructions}\n{text}" if self._instructions else text),), {}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        action = self._action(text)
        data = self._call("step", action) if isinstance(action, dict) else action
        if isinstance(data, str):  # why it is invalid
            answer, reward, is_done = f"Invalid action: {data}\n", 0.0, False
        else:
            answer, reward, is_done = self._result(data)
        self._return += reward
        is_cut = not is_done and 0 < self._horizon <= len(self._step_history) + 1
        info: dict[str, Any] = {"legal": not isinstance(data, str)}
        if is_done or is_cut:
            info["success"] = is_done and self._return >= self._success_reward
        return (user(answer),), reward, is_done, is_cut, info

    def _action(self, text: str) -> dict[str, Any] | str:
        """The action of a text; why it is none."""
        if self._action_field:
            return {**self._action_fields, self._action_field: text}
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            return "the text is no JSON"
        return {**self._action_fields, **fields} if isinstance(fields, dict) else "no JSON object"

    def _call(self, kind: str, data: dict[str, Any]) -> Any:
        """The data of the answer, or why an action is invalid."""
        answer = self._client.request(json.dumps({"type": kind, "data": data}))
        details = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(details, dict) or answer.get("type") not in ("observation", "error"):
            raise self._failure(f"answered {answer!r:.300}", "nonsense")
        if answer["type"] == "error":
            message = f"{details.get('message')} {details.get('errors') or ''}".strip()
            if kind == "step" and details.get("code") == _INVALID:
                return message[:1000]
            raise self._failure(f"failed at {kind}: {message:.300}", "raised")
        return details

    def _result(self, data: dict[str, Any]) -> tuple[str, float, bool]:
        """The text of an observation, the reward and whether the episode is done."""
        observation, reward, is_done = data.get("observation"), data.get("reward"), data.get("done")
        reward = 0.0 if reward is None else reward
        is_number = isinstance(reward, int | float) and math.isfinite(reward)
        if not isinstance(observation, dict) or not is_number or not isinstance(is_done, bool):
            raise self._failure(f"answered {data!r:.300}", "nonsense")
        names = self._shown_fields or tuple(observation)
        parts = [_text(observation.get(name)) for name in names]
        if len(parts) != 1:
            parts = [f"{name}: {part}" for name, part in zip(names, parts)]
        return "\n".join(parts).rstrip("\n") + "\n", float(reward), is_done

    def _failure(self, message: str, kind: str = "nonsense") -> EnvironmentFailure:
        self.close()
        return EnvironmentFailure(f"the server {self._client.url} {message}", kind)

    def close(self) -> None:
        """Close the connection, and with it the environment on the server."""
        with contextlib.suppress(EnvironmentFailure):
            self._client.close(json.dumps({"type": "close"}))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
