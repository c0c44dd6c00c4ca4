"""A client of VerlTool's tool server (arXiv 2509.01055): actions of trajectories, in batches."""

import contextlib
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.messages import ImagePart
from agentrl_jax.tool_servers.json_client import JsonClient
from agentrl_jax.tools import Tool, ToolOutput

_GRACE_SECONDS = 10.0  # beyond a request's own time, for a busy machine


@dataclass(frozen=True)
class Answer:
    """What the server answers to an action."""

    text: str
    is_done: bool  # the trajectory should end
    is_valid: bool  # some tool has read the action
    reward: float | None = None
    images: tuple[ImagePart, ...] = ()
    reason: str = ""  # why the action is not valid


def observe(
    client: JsonClient,
    trajectory_ids: Sequence[str],
    actions: Sequence[str],
    finish: Sequence[bool] | None = None,
    extra_fields: Sequence[Mapping[str, Any]] | None = None,
    is_last_step: Sequence[bool] | None = None,
) -> list[Answer]:
    """The answers to actions of trajectories, by one POST of `/get_observation`.

    Args:
        client: of the server.
        trajectory_ids: one for each action; the server keeps a state for each.
        actions: texts of the policy.
        finish: which trajectories end, whose states are dropped; none without it.
        extra_fields: further data for the tools.
        is_last_step: which actions are the last of their trajectories.

    Raises:
        EnvironmentFailure: a tool failed, or the server did (`JsonClient`).
        UserError: the server refuses the key.
    """
    body: dict[str, Any] = {
        "trajectory_ids": list(trajectory_ids),
        "actions": list(actions),
        "extra_fields": [dict(fields) for fields in extra_fields or [{}] * len(actions)],
        "finish": list(finish or [False] * len(actions)),
        "is_last_step": list(is_last_step or [False] * len(actions)),
    }
    data = client.post("/get_observation", body)
    try:
        rows = list(zip(data["observations"], data["dones"], data["valids"], strict=True))
        if len(rows) != len(actions):
            raise ValueError(f"{len(rows)} answers to {len(actions)} actions")
        return [_answer(client.url, *row) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise EnvironmentFailure(
            f"the answer of {client.url} has not VerlTool's form ({error}): {data!r:.300}",
            "nonsense",
        ) from error


def _answer(url: str, observation: Any, is_done: Any, is_valid: Any) -> Answer:
    if type(is_done) is not bool or type(is_valid) is not bool:
        raise TypeError("dones and valids are not booleans")
    if isinstance(observation, str):
        return Answer(observation, is_done, is_valid)
    if observation.get("error"):
        raise EnvironmentFailure(f"a tool of {url} failed: {observation['error']!s:.300}")
    text, reward = observation.get("obs", ""), observation.get("reward")
    images = observation.get("image") or []
    images = [images] if isinstance(images, str) else images
    if not isinstance(text, str) or not all(isinstance(image, str) for image in images):
        raise TypeError("obs and image are not texts")
    if reward is not None and not math.isfinite(reward):
        raise ValueError("the reward is not finite")
    return Answer(
        text,
        is_done,
        is_valid,
        None if reward is None else float(reward),
        tuple(ImagePart(image) for image in images),
        str(observation.get("invalid_reason") or ""),
    )


class VerlToolSession:
    """The trajectory of one environment on a server.

    An environment calls `restart` when it is reset and `close` when it is closed. One whose actions
    are texts passes them to `act`; a `ToolEnvironment` lists the results of `tool`.
    """

    def __init__(self, client: JsonClient) -> None:
        """Sends nothing yet. Raises UserError where the client's settings are wrong."""
        self._client = client.check()
        self._trajectory_id = ""

    def restart(self) -> None:
        """Begin another trajectory; the server drops the last one."""
        self.close()
        self._trajectory_id = uuid.uuid4().hex

    def act(
        self, action: str, is_last_step: bool = False, extra: Mapping[str, Any] | None = None
    ) -> Answer:
        """The answer to an action.

        Raises:
            EnvironmentFailure, UserError: as `observe`.
        """
        if not self._trajectory_id:
            raise UserError("a trajectory of a tool server has not begun: call restart at reset")
        (answer,) = observe(
            self._client,
            [self._trajectory_id],
            [action],
            extra_fields=[extra or {}],
            is_last_step=[is_last_step],
        )
        return answer

    def tool(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        action: str,
        max_characters: int = Tool.max_characters,
    ) -> Tool:
        """A tool whose calls are actions of the trajectory.

        Args:
            name: of the tool.
            description: for the policy.
            parameters: a JSON schema of the arguments.
            action: how the server's tool reads a call, such as `<python>{code}</python>`.
            max_characters: of a result.
        """

        def run(**arguments: Any) -> ToolOutput:
            answer = self.act(action.format_map(arguments))
            if answer.is_valid:
                return ToolOutput(answer.text, images=answer.images)
            return ToolOutput(answer.text or f"Error: {answer.reason or 'an invalid call'}", True)

        seconds = self._client.seconds + _GRACE_SECONDS
        return Tool(name, description, parameters, run, seconds, max_characters)

    def close(self) -> None:
        """End the trajectory; a server that is gone has dropped it anyway."""
        trajectory_id, self._trajectory_id = self._trajectory_id, ""
        if trajectory_id:
            with contextlib.suppress(EnvironmentFailure):
                observe(self._client, [trajectory_id], [""], [True], [{"finish": True}], [True])
