"""Demonstrations as JSON records, and ArrayRecord files of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from array_record.python.array_record_module import ArrayRecordWriter

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, ToolSchema, action_from_json, action_to_json
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.trajectories import Trajectory, Turn

DEMONSTRATION = "demonstration"  # the agent name of trajectories read from a file
# A turn as a worker returns it: action, observation, reward, terminated, truncated, info. An action
# is a text, or a message as JSON data.
DemonstrationTurns = Sequence[
    tuple[str | dict[str, Any], list[dict[str, Any]], float, bool, bool, Mapping[str, Any]]
]


def encode(trajectory: Trajectory) -> bytes:
    """The record of a trajectory: its text alone; token ids are made when it is read.

    That a limit cut the episode is kept in its last turn.
    """
    turns = [
        (
            action_to_json(t.action),
            [m.to_dict() for m in t.observation],
            t.reward,
            t.terminated,
            t.truncated or (trajectory.truncated and t is trajectory.turns[-1]),
            t.info,
        )
        for t in trajectory.turns
    ]
    opening, x = [m.to_dict() for m in trajectory.opening], trajectory
    return encode_turns(opening, turns, x.task, x.success, x.tools, x.record)


def encode_turns(
    opening: list[dict[str, Any]],
    turns: DemonstrationTurns,
    task: str,
    success: bool | None,
    tools: Sequence[ToolSchema] = (),
    line: str = "",
) -> bytes:
    """The record of an episode whose messages are plain data, as `EnvServer` plays it."""
    turn_data = [
        {
            "action": action,
            "observation": observation,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "forget": bool(info.get("forget", False)),
        }
        for action, observation, reward, terminated, truncated, info in turns
    ]
    plain_success = None if success is None else bool(success)  # it may be NumPy's bool
    record = {"opening": opening, "turns": turn_data, "task": task, "success": plain_success}
    if tools:
        record["tools"] = list(tools)
    if line:
        record["record"] = line
    return json.dumps(record).encode()


def decode(record: bytes) -> Trajectory:
    """The inverse of `encode`; UserError where the bytes are no record.

    An episode whose last turn does not end it was cut: its stop reason is "truncated".
    """
    try:
        data = json.loads(record)
        turns = tuple(
            Turn(
                (),
                action_from_json(turn["action"]),
                tuple(map(Message.from_dict, turn["observation"])),
                float(turn["reward"]),
                terminated=turn["terminated"],
                truncated=turn["truncated"],
                info={"forget": True} if turn["forget"] else {},
            )
            for turn in data["turns"]
        )
        return Trajectory(
            tuple(map(Message.from_dict, data["opening"])),
            turns,
            data["task"],
            agent=DEMONSTRATION,
            success=data["success"],
            stop_reason="terminated" if turns and turns[-1].terminated else "truncated",
            tools=tuple(data.get("tools", ())),
            record=data.get("record", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"a demonstration record is corrupt ({error!r}): write the file again"
        ) from error


def write(path: Path, records: Iterable[bytes]) -> int:
    """Write an ArrayRecord file atomically, and return the number of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with atomic_write(path) as unfinished:
        writer = ArrayRecordWriter(str(unfinished), "group_size:1")
        for record in records:
            writer.write(record)
            count += 1
        writer.close()
    return count
