"""The trajectory log: one JSON line per trajectory, enough to rebuild every token of it.

    {"schema": 1, "phase": "rl", "step": 3, "task": "agentrl/Wordle-v0#7", ...,
     "opening": [{"role": "user", ...}],
     "turns": [{"action": {...}, "observation": [...], "reward": -1.0, ...,
                "calls": [{"prompt": [5, 6], "action": [7], ...}]},
               {..., "calls": [{"parent": 0, "added": [8, 9], "action": [10], ...}]}]}

A call that extends its parent exactly holds only what its prompt adds to the parent's prompt and
action, so a line is linear in the episode's length. `parent` counts the trajectory's calls from 0.
Log-probs are written with nine digits, which identify a float32 uniquely. What is read equals what
was written, except that `info` comes back as JSON data (a tuple as a list, a NumPy number as a
number, as after a worker's pipe) and that a parent outside the trajectory is dropped (the prompt
of such a call is stored in full).
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.storage.jsonl import dumps, parse_float, read_lines
from agentrl_jax.storage.trajectory_json import DAMAGED, trajectory_from_json, trajectory_to_json
from agentrl_jax.trajectories import Trajectory

SCHEMA = 1


def write(
    path: str | os.PathLike[str], trajectories: Sequence[Trajectory], step: int, phase: str
) -> None:
    """Append one line per trajectory.

    Raises:
        UserError: an `info` holds what JSON cannot, or the file cannot be written.
    """
    lines = [
        dumps({"schema": SCHEMA, "phase": phase, "step": step, **trajectory_to_json(t)}, t.task)
        + "\n"
        for t in trajectories
    ]
    try:
        with open(path, "a", encoding="ascii") as file:
            file.write("".join(lines))
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}): free some space or choose another run folder"
        ) from error


def read(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], Trajectory]]:
    """Yields (header, trajectory) in order; the header holds `schema`, `phase`, `step`, `return`.

    A truncated last line is ignored.

    Raises:
        UserError: a line is damaged or of another schema; names file and line.
    """
    for number, data in read_lines(path):
        if data.get("schema") != SCHEMA:
            schema = data.get("schema")
            raise UserError(
                f"{path}, line {number}: schema {schema!r} is not {SCHEMA}; "
                "read it with the version that wrote it"
            )
        try:
            header = {name: data[name] for name in ("schema", "phase", "step")}
            header["return"] = parse_float(data["return"])
            trajectory = trajectory_from_json(data)
        except DAMAGED as error:
            raise UserError(
                f"{path}, line {number}: not a trajectory ({type(error).__name__}: {error}); "
                "delete the line"
            ) from error
        yield header, trajectory
