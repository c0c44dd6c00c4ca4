"""Converts demonstrations, preferences and what a run wrote into other files."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl_jax.algorithms.pairwise.reward_model import ranked_pairs
from agentrl_jax.errors import UserError
from agentrl_jax.formats.exports import ChatExport, write_chats, write_pairs
from agentrl_jax.formats.record_tables import TABLES, write_parquet
from agentrl_jax.storage import demonstration_file, trajectory_log
from agentrl_jax.storage.jsonl import read_lines
from agentrl_jax.storage.segments import segment_paths
from agentrl_jax.training.demonstrations import open_source
from agentrl_jax.training.preferences import holds_preferences, open_preferences
from agentrl_jax.trajectories import Group, Trajectory

GroupKey = tuple[Any, ...]  # equal for the episodes of a group; the task is last


def export_table(source: Path, out: Path, name: str) -> str:
    """Write a table of a trajectory log, and return its number of rows."""
    log = log_of(source)
    if not is_trajectory_log(log):
        raise UserError(f"--table is for a run folder or a trajectory log, not for {source}")
    if name not in TABLES or out.suffix != ".parquet":
        raise UserError(
            f"--export={out} --table={name}: a table is one of {', '.join(TABLES)}, and a .parquet "
            "file"
        )
    return f"{write_parquet(out, trajectory_log.read(log), name):,} {name} in {out}"


def export_episodes(chats: Iterator[ChatExport], out: Path) -> str:
    """Write episodes in the format that the file's name says, and return their number."""
    if out.suffix == ".jsonl":
        count = write_chats(out, chats)
    else:
        records = (demonstration_file.encode(chat.trajectory) for chat in chats)
        count = demonstration_file.write(out, records)
    return f"{count:,} episodes in {out}"


def export_pairs(source: Path, out: Path) -> str:
    """Write the pairs of a source, and return their number.

    Pairs of one conversation that had two returns say nothing about a policy; they are counted.
    """
    pairs, equal = [], 0
    for group in read_groups(source):
        for preferred, other in ranked_pairs(group):
            if preferred.messages == other.messages:
                equal += 1
            else:
                pairs.append((preferred, other))
    if not pairs:
        raise UserError(f"{source} holds no two episodes of one group whose returns differ")
    left_out = f", without {equal:,} of equal conversations" if equal else ""
    return f"{write_pairs(out, pairs):,} pairs in {out}{left_out}"


def read_groups(source: Path) -> Iterator[Group]:
    """The groups of preferences or of a trajectory log, or the demonstrations of each task."""
    source = log_of(source)
    if not is_trajectory_log(source) and holds_preferences(source):
        groups = open_preferences(source)
        yield from (groups[i] for i in range(len(groups)))
        return
    members: dict[GroupKey, list[Trajectory]] = defaultdict(list)
    for key, chat in read_episodes(source):
        members[key].append(chat.trajectory)
    for key, trajectories in members.items():
        if key[-1]:  # episodes that name no task are in no group
            yield Group(key[-1], tuple(trajectories))


def read_episodes(source: Path) -> Iterator[tuple[GroupKey, ChatExport]]:
    """The episodes of a run folder, a trajectory log, or demonstrations, with their groups."""
    source = log_of(source)
    if not is_trajectory_log(source):
        demonstrations = open_source(source)
        for i in range(len(demonstrations)):
            trajectory = demonstrations[i]
            yield (trajectory.task,), ChatExport(trajectory)
        return
    for record in trajectory_log.read(source):
        x = record.trajectory
        origin = {"phase": record.phase, "step": record.step, "group": x.group}
        metadata = {**origin, "sample": x.sample, "seed": x.seed, "agent_index": x.agent_index}
        yield (*origin.values(), x.agent_index, x.task), ChatExport(x, metadata)


def log_of(source: Path) -> Path:
    """The trajectory log of a run folder; any other path as it is."""
    log = source / trajectory_log.FOLDER
    return log if log.is_dir() else source


def is_trajectory_log(path: Path) -> bool:
    """Whether it is a folder of segments, or a file whose first line is a trajectory with its
    tokens.
    """
    if path.is_dir() and segment_paths(path):
        return True
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    try:
        _, first = next(read_lines(path), (0, {}))
    except UserError:  # the reader of the file names what is wrong
        return False
    return {"schema", "turns"} <= first.keys()
