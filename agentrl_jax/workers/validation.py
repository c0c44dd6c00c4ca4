"""What environments return, validated and as JSON data."""

import math
from typing import Any, get_args

import numpy as np

from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.messages import Role
from agentrl_jax.tools.json_schema import is_tool_schema
from agentrl_jax.workers.observation_limit import DEFAULT_LIMIT, ObservationLimit

_BOOLS, _NUMBERS = (bool, np.bool_), (float, int, np.number)
_ROLES = frozenset(get_args(Role))


def invalid_output_failure(message: str) -> EnvironmentFailure:
    return EnvironmentFailure(message, "nonsense")


def validate_reset(
    result: Any, limit: ObservationLimit = DEFAULT_LIMIT
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The result of `reset` as JSON data. Raises EnvironmentFailure if it is invalid."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise invalid_output_failure("reset must return (messages, info)")
    opening, info = result
    if not opening:
        raise invalid_output_failure(
            "reset must return at least one message: there is nothing to answer"
        )
    info = _validate_info(info)
    tools = info.get("tools", [])
    if not isinstance(tools, list | tuple) or not all(map(is_tool_schema, tools)):
        raise invalid_output_failure(
            "info['tools'] must be tools in OpenAI's JSON format, as Tool.schema writes them"
        )
    return _serialize_messages(opening, limit), info


def validate_step(
    result: Any, limit: ObservationLimit = DEFAULT_LIMIT
) -> tuple[list[dict[str, Any]], float, bool, bool, dict[str, Any]]:
    """The result of `step` as JSON data. Raises EnvironmentFailure if it is invalid."""
    if not isinstance(result, tuple) or len(result) != 5:
        raise invalid_output_failure(
            "step must return (messages, reward, terminated, truncated, info)"
        )
    observation, reward, terminated, truncated, info = result
    if not isinstance(terminated, _BOOLS) or not isinstance(truncated, _BOOLS):
        raise invalid_output_failure(
            f"terminated and truncated must be bools, not {terminated!r:.50} and {truncated!r:.50}"
        )
    if not observation and not (terminated or truncated):
        raise invalid_output_failure(
            "step must return at least one message unless the episode is over: "
            "there is nothing to answer"
        )
    return (
        _serialize_messages(observation, limit),
        _validate_reward(reward),
        bool(terminated),
        bool(truncated),
        _validate_info(info),
    )


def _validate_reward(reward: Any) -> float:
    if not _is_finite(reward):
        raise invalid_output_failure(f"a reward must be a finite number, not {reward!r:.50}")
    return float(reward)


def _is_finite(x: Any) -> bool:
    """Whether it is a real number that a float can hold."""
    if not isinstance(x, _NUMBERS) or isinstance(x, np.complexfloating):
        return False
    try:
        return math.isfinite(x)
    except OverflowError:  # a large int
        return False


def _validate_info(info: Any) -> dict[str, Any]:
    if not isinstance(info, dict):
        raise invalid_output_failure(f"info must be a dict, not {info!r:.50}")
    parts, success, seat = info.get("rewards", {}), info.get("success"), info.get("seat", 0)
    if not isinstance(parts, dict):
        raise invalid_output_failure(
            f"info['rewards'] must be a dict of numbers, not {parts!r:.50}"
        )
    for reward in parts.values():
        _validate_reward(reward)
    if not (success is None or isinstance(success, _BOOLS)):
        raise invalid_output_failure(f"info['success'] must be a bool or None, not {success!r:.50}")
    if isinstance(seat, _BOOLS) or not isinstance(seat, int | np.integer) or seat < 0:
        raise invalid_output_failure(
            f"info['seat'] must be a seat's number, from 0, not {seat!r:.50}"
        )
    return info


def _serialize_messages(messages: Any, limit: ObservationLimit) -> list[dict[str, Any]]:
    """The messages as JSON data.

    Text that is no encodable Unicode is rejected: the tokenizer would raise far from the cause.
    """
    try:
        for m in messages:
            if m.role not in _ROLES:
                raise ValueError(f"{m.role!r:.50} is no role")
            m.text.encode()
        return [m.to_dict() for m in limit.apply(messages)]
    except (TypeError, ValueError, AttributeError) as error:
        raise invalid_output_failure(
            f"messages must be a tuple of Message, not {messages!r:.50} ({error})"
        ) from error
