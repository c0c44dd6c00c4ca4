"""Demonstrations as bytes: a conversation as JSON, and files of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from array_record.python.array_record_module import ArrayRecordWriter

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message
from agentrl_jax.replacing import replacing
from agentrl_jax.trajectories import Trajectory, Turn

DEMONSTRATION = "demonstration"  # the agent of what is read from a file
# A turn as a worker tells it: action, observation, reward, terminated, truncated, info.
Played = Sequence[tuple[str, list[dict[str, Any]], float, bool, bool, Mapping[str, Any]]]


def encode(trajectory: Trajectory) -> bytes:
    """One record. A demonstration is text; ids are made when it is read."""
    turns = [(t.action.text, [m.to_dict() for m in t.observation], t.reward, t.terminated, t.truncated, t.info) for t in trajectory.turns]
    return encode_played([m.to_dict() for m in trajectory.opening], turns, trajectory.task, trajectory.success)


def encode_played(opening: list[dict[str, Any]], turns: Played, task: str, success: bool | None) -> bytes:
    """The record of an episode whose messages are plain data, as `worker.Worlds` plays it."""
    told = [
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
    won = None if success is None else bool(success)  # a world may say it with NumPy's
    return json.dumps({"opening": opening, "turns": told, "task": task, "success": won}).encode()


def decode(record: bytes) -> Trajectory:
    """The inverse of `encode`. Raises UserError where the record is not one."""
    try:
        data = json.loads(record)
        turns = tuple(
            Turn(
                (), Message("assistant", turn["action"]), tuple(map(Message.from_dict, turn["observation"])), float(turn["reward"]),
                terminated=turn["terminated"], truncated=turn["truncated"], info={"forget": True} if turn["forget"] else {},
            )
            for turn in data["turns"]
        )  # fmt: skip
        return Trajectory(tuple(map(Message.from_dict, data["opening"])), turns, data["task"], agent=DEMONSTRATION, success=data["success"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"a demonstration record is corrupt ({error!r}): write the file anew") from error


def write(path: Path, records: Iterable[bytes]) -> None:
    """Write an ArrayRecord file; it appears under its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        writer = ArrayRecordWriter(str(unfinished), "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()
