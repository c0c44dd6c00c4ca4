"""`AgentGym`: an environment behind AgentGym's HTTP verbs (arXiv 2406.04151)."""

import contextlib
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from agentrl_jax.environment import Environment, Messages
from agentrl_jax.envs.options import check_no_options, checked_bool, checked_int
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import user
from agentrl_jax.tool_servers.json_client import JsonClient


class AgentGym(Environment):
    """An environment of a server: `/create` once, then `/reset` and `/step` for each episode.

    The seed of an episode chooses the task. What the server does wrong is a failure of the
    environment, and the episode is played again in another environment of the server.

    Args:
        url: of the server.
        key_variable: the environment variable with the bearer token; empty: none.
        tasks: how many the server has; the task is the seed modulo this, or the seed where it is 0.
        create: fields of `/create`.
        instructions: shown before the first observation.
        action_pattern: the action is the first group of the last match in the policy's text; empty:
            the whole text. ReAct is `Action:\\s*(.*)`.
        success_reward: an episode that is done has succeeded where its return is at least this,
            unless the server says.
        reward_is_score: rewards are scores so far; the reward of a step is the difference.
        horizon: turns before truncation; 0: as the server does.
        seconds: of a request.
        max_bytes: of a response.
        id_field: what the server calls an environment's number: `id`, elsewhere `env_idx`.
        task_field: and a task's number.
    """

    server_options: ClassVar[tuple[str, ...]] = ("url",)

    def __init__(
        self,
        url: str = "",
        key_variable: str = "",
        tasks: int = 0,
        create: Mapping[str, Any] | None = None,
        instructions: str = "",
        action_pattern: str = "",
        success_reward: float = 1.0,
        reward_is_score: bool = False,
        horizon: int = 0,
        seconds: float = 60.0,
        max_bytes: int = 2**24,
        id_field: str = "id",
        task_field: str = "data_idx",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        self._client = JsonClient(url, key_variable, seconds, max_bytes).check()
        self._num_tasks = checked_int("tasks", tasks, 0, 2**63 - 1)
        self._horizon = checked_int("horizon", horizon, 0, 2**31)
        self._reward_is_score = checked_bool("reward_is_score", reward_is_score)
        self._create_fields, self._instructions = dict(create or {}), instructions
        self._success_reward = success_reward
        self._id_field, self._task_field = id_field, task_field
        try:
            self._pattern = re.compile(action_pattern)
        except re.error as error:
            raise UserError(f"action_pattern {action_pattern!r} is no pattern: {error}") from error
        if action_pattern and self._pattern.groups < 1:
            raise UserError(f"action_pattern {action_pattern!r} needs a group: the action")
        self.rules = f"{instructions}\nAn environment of {url}; your text is the action."
        self._identity: Any = None  # of the environment on the server
        self._return = 0.0

    def _reset(self, options: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        check_no_options("AgentGym", options)
        seed = int(self.np_random_seed if self._seed is None else self._seed)
        task = seed % self._num_tasks if self._num_tasks else seed
        if self._identity is None:
            self._identity = self._identity_of(self._call("/create", self._create_fields))
        data = self._call("/reset", {self._id_field: self._identity, self._task_field: task})
        if isinstance(data, str):
            data = {"observation": data}
        if _observation_text(data) is None:
            data = self._client.get("/observation", **{self._id_field: self._identity})
            data = {"observation": data} if isinstance(data, str) else data
        text = _observation_text(data)
        if text is None:
            raise self._nonsense("/reset and /observation", data)
        self._return = 0.0
        opening = f"{self._instructions}\n{text}" if self._instructions else text
        return (user(opening),), {"task_index": task}

    def _step(self, text: str) -> tuple[Messages, float, bool, bool, dict[str, Any]]:
        matches = [m[1] for m in self._pattern.finditer(text)] if self._pattern.pattern else [text]
        action = matches[-1].strip() if matches and matches[-1] else ""
        body = {self._id_field: self._identity, "action": action}
        data = self._call("/step", body)
        observation = _observation_text(data)
        reward, is_done = data.get("reward"), data.get("done")
        is_number = isinstance(reward, int | float) and math.isfinite(reward)
        if observation is None or not is_number or not isinstance(is_done, bool):
            raise self._nonsense("/step", data)
        gain = float(reward) - (self._return if self._reward_is_score else 0.0)
        self._return += gain
        is_cut = 0 < self._horizon <= len(self._step_history) + 1 and not is_done
        is_cut = is_cut or (bool(is_done) and data.get("truncated") is True)
        info: dict[str, Any] = {}
        if is_done or is_cut:
            details = data.get("info")
            success = details.get("success") if isinstance(details, dict) else None
            if not isinstance(success, bool):
                success = self._return >= self._success_reward
            info["success"] = success and not is_cut
        observed = (user(observation),) if observation or not (is_done or is_cut) else ()
        return observed, gain, bool(is_done) and not is_cut, is_cut, info

    def _call(self, path: str, body: dict[str, Any]) -> Any:
        """The response's JSON. A failure loses the environment on the server."""
        try:
            data = self._client.post(path, body)
            if isinstance(data, dict) and data.get("error"):
                raise EnvironmentFailure(
                    f"{self._client.url}{path} failed: {data['error']!s:.300}", "raised"
                )
            if path == "/step" and not isinstance(data, dict):
                raise self._nonsense(path, data)
            return data
        except EnvironmentFailure:
            self.close()
            raise

    def _identity_of(self, data: Any) -> Any:
        value = data.get(self._id_field) if isinstance(data, dict) else data
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self._nonsense("/create", data)
        return value

    def _nonsense(self, path: str, data: Any) -> EnvironmentFailure:
        self.close()
        return EnvironmentFailure(
            f"the answer of {self._client.url} to {path} has not AgentGym's form: {data!r:.300}",
            "nonsense",
        )

    def close(self) -> None:
        """Close the environment on the server; one that is gone needs no closing."""
        identity, self._identity = self._identity, None
        if identity is not None:
            with contextlib.suppress(EnvironmentFailure):
                self._client.post("/close", {self._id_field: identity})


def _observation_text(data: Any) -> str | None:
    """The text of an observation; None where there is none."""
    if not isinstance(data, dict):
        return None
    text = data.get("observation", data.get("state"))
    return text if isinstance(text, str) else None
