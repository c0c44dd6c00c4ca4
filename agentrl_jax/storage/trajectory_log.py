"""The trajectory log: one JSON line per trajectory, enough to rebuild every token of it.

    {"schema": 2, "phase": "rl", "step": 3, "task": "agentrl/Wordle-v0#7", ...,
     "opening": [{"role": "user", ...}],
     "turns": [{"action": {...}, "observation": [...], "reward": -1.0, ...,
                "training": {"reward": -0.5, "rewards": {...}},
                "calls": [{"prompt": [5, 6], "action": [7], ...,
                           "training": {"weight": [0.1], "advantage": [-0.7], ...}}]},
               {..., "calls": [{"parent": 0, "added": [8, 9], "action": [10], ...}]}]}

A call that extends its parent exactly holds only what its prompt adds to the parent's prompt and
action, so a line is linear in the episode's length. `parent` counts the trajectory's calls from 0.
Log-probs are written with nine digits, which identify a float32 uniquely; what training used with
six. Images are stored once each, beside the file (`storage/image_store.py`). What is read equals
what was written, except that `info` comes back as JSON data (a tuple as a list, a NumPy number as a
number, as after a worker's pipe) and that a parent outside the trajectory is dropped (the prompt of
such a call is stored in full).

A log is a file, or the folder of a run: its segments (`storage/segments.py`) in their order.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.storage import jsonl
from agentrl_jax.storage.digests import file_damage
from agentrl_jax.storage.image_store import FOLDER as IMAGE_FOLDER
from agentrl_jax.storage.image_store import ImageStore
from agentrl_jax.storage.segments import segment_paths
from agentrl_jax.storage.training_json import add_training, training_from_json
from agentrl_jax.storage.trajectory_json import DAMAGED, trajectory_from_json, trajectory_to_json
from agentrl_jax.trajectories import Trajectory
from agentrl_jax.trajectory_record import TrajectoryRecord

SCHEMA = 2
FOLDER = "trajectories"  # of a run folder


def write(path: Path, trajectories: Sequence[Trajectory], step: int, phase: str) -> None:
    """Append one line per trajectory to a file.

    Raises:
        UserError: an `info` holds what JSON cannot, or the file cannot be written.
    """
    images = ImageStore(path.parent / IMAGE_FOLDER)
    try:
        lines = [record_line(TrajectoryRecord(phase, step, t), images) for t in trajectories]
        with open(path, "a", encoding="ascii") as file:
            file.write("".join(lines))
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}): free some space or choose another run folder"
        ) from error


def record_line(record: TrajectoryRecord, images: ImageStore | None = None) -> str:
    """A record as a line with its checksum and line feed.

    Args:
        record: the record.
        images: stores its images; None: they are in the line.

    Raises:
        UserError: an `info` holds what JSON cannot.
    """
    data = trajectory_to_json(record.trajectory)
    if images is not None:
        images.store(data)
    if record.training is not None:
        add_training(data, record.training)
    header = {"schema": SCHEMA, "phase": record.phase, "step": record.step}
    return jsonl.record_line({**header, **data}, record.trajectory.task)


def read(path: Path) -> Iterator[TrajectoryRecord]:
    """The records of a file or of a run's folder `trajectories`, in order.

    A truncated last line of a file is ignored, unless a digest of the file is kept.

    Raises:
        UserError: the file is not as it was written, or a line is damaged or of another schema;
            names file and line.
    """
    if damage := file_damage(path):
        raise UserError(f"{path} is damaged ({damage}): restore it from a copy, or delete it")
    return read_files(segment_paths(path) if path.is_dir() else [path])


def read_files(paths: Iterable[Path]) -> Iterator[TrajectoryRecord]:
    """`read`, of several files."""
    for path in paths:
        yield from _read_file(path)


def _read_file(path: Path) -> Iterator[TrajectoryRecord]:
    images = ImageStore(path.parent / IMAGE_FOLDER)
    for number, data in jsonl.read_lines(path):
        if data.get("schema") != SCHEMA:
            schema = data.get("schema")
            raise UserError(
                f"{path}, line {number}: schema {schema!r} is not {SCHEMA}; "
                "read it with the version that wrote it"
            )
        try:
            images.restore(data)
            record = TrajectoryRecord(
                data["phase"], data["step"], trajectory_from_json(data), training_from_json(data)
            )
        except DAMAGED as error:
            raise UserError(
                f"{path}, line {number}: not a trajectory ({type(error).__name__}: {error}); "
                "delete the line"
            ) from error
        yield record
