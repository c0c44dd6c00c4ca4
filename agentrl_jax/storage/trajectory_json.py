"""A trajectory as JSON data and back, for the trajectory log and for checkpoints."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.messages import ImagePart, Message
from agentrl_jax.storage.jsonl import dumps, from_json_data, parse_float
from agentrl_jax.storage.significant_digits import significant, significant_rows
from agentrl_jax.token_buffer import TokenBuffer
from agentrl_jax.trajectories import Call, CallTime, Sampling, Trajectory, Turn, TurnTime

# JSON key -> field of `Trajectory`
_SCALAR_FIELDS = {
    "task": "task",
    "group": "group",
    "sample": "sample",
    "seat": "agent_index",
    "seed": "seed",
    "agent": "agent",
    "success": "success",
    "stop_reason": "stop_reason",
    "error": "error",
    "parent": "parent",
    "branch_turn": "branch_turn",
}
DIGITS = 9  # of log-probs and entropies: the fewest that identify a float32 uniquely
# What `trajectory_from_json` raises where the data are no trajectory.
DAMAGED = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def encode(trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as plain JSON data, for a checkpoint's host state.

    Raises:
        UserError: an `info` holds what JSON cannot.
    """
    return json.loads(dumps(trajectory_to_json(trajectory), trajectory.task))


def decode(data: Mapping[str, Any]) -> Trajectory:
    """The inverse of `encode`; UserError where the data are no trajectory."""
    try:
        return trajectory_from_json(data)
    except DAMAGED as error:
        raise UserError(
            f"not a trajectory ({type(error).__name__}: {error}): "
            "the checkpoint is damaged or of another version"
        ) from error


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """The data of a trajectory as `jsonl.dumps` takes them: arrays are not yet lists."""
    call_ids: list[int] = []  # id() of each call so far
    return {
        **{key: getattr(trajectory, field) for key, field in _SCALAR_FIELDS.items()},
        "return": trajectory.total_reward,
        **({"tools": trajectory.tools} if trajectory.tools else {}),
        "opening": [message.to_dict() for message in trajectory.opening],
        "turns": [_turn_to_json(turn, call_ids) for turn in trajectory.turns],
    }


def _turn_to_json(turn: Turn, call_ids: list[int]) -> dict[str, Any]:
    return {
        "action": turn.action.to_dict(),
        "observation": [message.to_dict() for message in turn.observation],
        "reward": turn.reward,
        "rewards": turn.rewards,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
        "info": turn.info,
        **({"notes": [note.to_dict() for note in turn.notes]} if turn.notes else {}),
        **({"time": _turn_time_to_json(turn.time)} if turn.time else {}),
        "calls": [_call_to_json(call, call_ids) for call in turn.calls],
    }


def _call_to_json(call: Call, call_ids: list[int]) -> dict[str, Any]:
    parent = call_ids.index(id(call.parent)) if id(call.parent) in call_ids else None
    call_ids.append(id(call))
    if parent is not None and call.parent is not None and call.extends(call.parent):
        prompt = {"parent": parent, "added": call.prompt[call.parent.length :]}
    else:
        prompt = {"parent": parent, "prompt": call.prompt}
    return {
        **prompt,
        "action": call.action,
        "sampler_logp": significant(call.sampler_logp, DIGITS),
        "version": call.version,
        "entropy": None if call.entropy is None else significant(call.entropy, DIGITS),
        "alternatives": call.alternatives,
        "alternative_logp": None
        if call.alternative_logp is None
        else significant_rows(call.alternative_logp, DIGITS),
        "sampling": vars(call.sampling),
        "finish_reason": call.finish_reason,
        "source": call.source,
        "key": call.key,
        "image_spans": call.image_spans,
        **({"images": [image.to_dict() for image in call.images]} if call.images else {}),
        **({"time": _call_time_to_json(call.time)} if call.time else {}),
    }


def _turn_time_to_json(time: TurnTime) -> dict[str, Any]:
    return {"environment": [round(time.environment_start, 6), round(time.environment_end, 6)]}


def _call_time_to_json(time: CallTime) -> dict[str, Any]:
    return {name: round(value, 6) for name, value in vars(time).items() if value is not None}


def trajectory_from_json(data: Mapping[str, Any]) -> Trajectory:
    """`decode`, with the exceptions of `DAMAGED` where the data are no trajectory."""
    calls: list[Call] = []
    buffer = TokenBuffer()
    turns = tuple(_turn_from_json(turn, calls, buffer) for turn in data["turns"])
    scalars = {field: data[key] for key, field in _SCALAR_FIELDS.items()}
    tools = tuple(map(dict, data.get("tools", ())))
    return Trajectory(_messages_from_json(data["opening"]), turns, tools=tools, **scalars)


def _turn_from_json(data: Mapping[str, Any], calls: list[Call], buffer: TokenBuffer) -> Turn:
    first = len(calls)
    for call in data["calls"]:
        calls.append(_call_from_json(call, calls, buffer))
    return Turn(
        calls=tuple(calls[first:]),
        action=Message.from_dict(data["action"]),
        observation=_messages_from_json(data["observation"]),
        reward=parse_float(data["reward"]),
        rewards=from_json_data(data["rewards"]),
        terminated=data["terminated"],
        truncated=data["truncated"],
        info=from_json_data(data["info"]),
        notes=_messages_from_json(data.get("notes", ())),
        time=TurnTime(*data["time"]["environment"]) if "time" in data else None,
    )


def _call_from_json(data: Mapping[str, Any], calls: Sequence[Call], buffer: TokenBuffer) -> Call:
    parent = None if data["parent"] is None else calls[data["parent"]]
    prompt = np.asarray(data["added" if "added" in data else "prompt"], np.int32)
    if parent is not None and "added" in data:
        prompt = buffer.extend(parent.prompt, parent.action, prompt)
    return Call(
        prompt=prompt,
        action=np.asarray(data["action"], np.int32),
        sampler_logp=_parse_floats(data["sampler_logp"]),
        version=np.asarray(data["version"], np.int32),
        sampling=_sampling_from_json(data["sampling"]),
        finish_reason=data["finish_reason"],
        source=data["source"],
        key=tuple(data["key"]),
        entropy=None if data["entropy"] is None else _parse_floats(data["entropy"]),
        alternatives=None
        if data["alternatives"] is None
        else np.asarray(data["alternatives"], np.int32),
        alternative_logp=None
        if data["alternative_logp"] is None
        else np.stack([_parse_floats(row) for row in data["alternative_logp"]]),
        image_spans=tuple((start, end) for start, end in data["image_spans"]),
        images=tuple(map(ImagePart.from_dict, data.get("images", ()))),
        parent=parent,
        time=CallTime(**data["time"]) if "time" in data else None,
    )


def _sampling_from_json(data: Mapping[str, Any]) -> Sampling:
    lists: dict[str, Any] = {
        name: tuple(data[name]) for name in ("stop_ids", "stop_strings", "forced")
    }
    return Sampling(**{**data, **lists})


def _parse_floats(values: Sequence[Any]) -> np.ndarray:
    return np.asarray([parse_float(value) for value in values], np.float32)


def _messages_from_json(data: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(map(Message.from_dict, data))
