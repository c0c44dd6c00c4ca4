"""Demonstrations: written as ArrayRecord by scripted players, read through grain, resumable at the exact record."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from agentrl_jax.episodes import scripted_calls
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.messages import Message
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Group, Trajectory, Turn

EPOCHS = 2**31  # without end, for all that matters: an endless grain data set cannot be had in batches of 1


def encode(trajectory: Trajectory) -> bytes:
    """One record: the conversation as JSON. A demonstration is text; ids are made when it is read."""
    turns = [
        {
            "action": turn.action.text,
            "observation": [m.to_dict() for m in turn.observation],
            "reward": turn.reward,
            "terminated": turn.terminated,
            "truncated": turn.truncated,
            "forget": bool(turn.info.get("forget", False)),
        }
        for turn in trajectory.turns
    ]
    return json.dumps(
        {"opening": [m.to_dict() for m in trajectory.opening], "turns": turns, "task": trajectory.task, "success": trajectory.success}
    ).encode()


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
        return Trajectory(
            tuple(map(Message.from_dict, data["opening"])), turns, data["task"], agent="demonstration", success=data["success"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"a demonstration record is corrupt ({error!r}): write the file anew") from error


def write(path: Path, trajectories: Sequence[Trajectory]) -> None:
    """Write an ArrayRecord file; it appears under its name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    writer = ArrayRecordWriter(str(unfinished), "group_size:1")
    for trajectory in trajectories:
        writer.write(encode(trajectory))
    writer.close()
    os.replace(unfinished, path)


def open_source(path: Path) -> grain.sources.RandomAccessDataSource[bytes]:
    """The file as a grain data source. Raises UserError where it is missing, empty or no ArrayRecord file."""
    if not path.is_file():
        raise UserError(f"there is no demonstration file {path}: check the path, or leave it empty to have one written")
    if path.stat().st_size == 0:
        raise UserError(f"the demonstration file {path} is empty: delete it and write it anew")
    try:
        source: Any = grain.sources.ArrayRecordDataSource(str(path))
        count = len(source)
    except Exception as error:
        raise UserError(f"the demonstration file {path} is corrupt or no ArrayRecord file: write it anew") from error
    if count == 0:
        raise UserError(f"the demonstration file {path} holds no record: write it anew")
    return source


def read(path: Path, limit: int | None = None) -> list[Trajectory]:
    """The demonstrations of a file, or its first `limit`."""
    source = open_source(path)
    return [decode(source[i]) for i in range(min(len(source), limit or len(source)))]


class Best:
    """The share of a source's records with the highest returns: filtered behaviour cloning's. Of equals the earlier come first."""

    def __init__(self, source: grain.sources.RandomAccessDataSource[bytes], share: float) -> None:
        if not 0 < share <= 1:
            raise UserError(f"the best share of the demonstrations is above 0 and at most 1, not {share}")
        order = np.argsort(-returns([decode(source[i]) for i in range(len(source))]), kind="stable")
        self._source, self._kept = source, np.sort(order[: max(1, round(share * len(source)))])

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, i: int) -> bytes:
        return self._source[int(self._kept[i])]


class DemonstrationFeed:
    """Endless shuffled batches of demonstrations with their calls, one group a demonstration; of several hosts, its share of each.

    All hosts are at the same record, so any number of them goes on from the same state.
    """

    def __init__(self, path: Path, agent: Agent, batch: int, seed: int, hosts: Hosts | None = None, best: float = 1.0) -> None:
        """`best`: the share of all that is drawn from, by return."""

        def with_calls(record: bytes) -> Group:
            trajectory = scripted_calls(decode(record), agent)
            check_budget(trajectory, agent)
            return Group(trajectory.task, (trajectory,))

        def own(records: Sequence[bytes]) -> list[Group]:
            return list(map(with_calls, (hosts or Hosts()).mine(records)))

        source: Any = open_source(path) if best == 1 else Best(open_source(path), best)
        if len(source) < batch:
            raise UserError(f"the demonstration file {path} holds {len(source)} records, fewer than one batch of {batch}")
        data = grain.MapDataset.source(source).seed(seed).shuffle().repeat(EPOCHS).batch(batch, batch_fn=list).map(own)
        self._iterator = iter(data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)))

    def next(self, step: int) -> list[Group]:
        return next(self._iterator)

    def state(self) -> Any:
        """Plain JSON data."""
        return self._iterator.get_state()

    def load(self, state: Any) -> None:
        self._iterator.set_state(state)


def check_budget(trajectory: Trajectory, agent: Agent) -> None:
    """Raises UserError where an action is longer than the agent may write: it would be taught what it can never say."""
    for turn in trajectory.turns:
        length, budget = len(turn.calls[-1].action), agent.sampling.budget
        if length > budget:
            raise UserError(
                f"the demonstrated action {turn.action.text!r} takes {length} tokens, an agent's budget is {budget}: raise agent.budget"
            )


def returns(trajectories: Sequence[Trajectory]) -> np.ndarray:
    return np.asarray([t.total_reward for t in trajectories], np.float64)


def texts(trajectories: Sequence[Trajectory]) -> Iterator[str]:
    """Every text of the conversations, actions with their stop."""
    for trajectory in trajectories:
        for message in trajectory.messages:
            yield message.text if message.text.endswith("\n") else message.text + "\n"
