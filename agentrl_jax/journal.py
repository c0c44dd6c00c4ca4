"""The journal of a run: one JSON line per trajectory, enough to rebuild every token of it.

    {"schema": 1, "phase": "rl", "step": 3, "task": "agentrl/Wordle-v0#7", ..., "opening": [{"role": "user", ...}],
     "turns": [{"action": {...}, "observation": [...], "reward": -1.0, ..., "calls": [{"prompt": [5, 6], "action": [7], ...}]},
               {..., "calls": [{"parent": 0, "added": [8, 9], "action": [10], ...}]}]}

A call that extends its parent exactly holds only what its prompt adds to the parent's prompt and action, so a line is linear
in the episode's length. `parent` counts the trajectory's calls from 0. Log-probs are written with nine digits, which name a
float32 uniquely. What comes back equals what went in, except that `info` comes back as JSON data (a tuple as a list, a NumPy
number as a number, as after a worker's pipe) and that a parent outside the trajectory is forgotten (its prompt is stored whole).
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message
from agentrl_jax.replacing import replacing
from agentrl_jax.trajectories import Call, Sampling, Trajectory, Turn

SCHEMA = 1
_PLAIN = ("task", "group", "sample", "seat", "seed", "agent", "success", "stop_reason", "error", "parent", "branch_turn")


def write(path: str | os.PathLike[str], trajectories: Sequence[Trajectory], step: int, phase: str) -> None:
    """Append one line per trajectory. Raises UserError where an `info` holds what JSON cannot or the file cannot be written."""
    lines = [dumps({"schema": SCHEMA, "phase": phase, "step": step, **_from_trajectory(t)}, t.task) + "\n" for t in trajectories]
    try:
        with open(path, "a", encoding="ascii") as file:
            file.write("".join(lines))
    except OSError as error:
        raise UserError(f"cannot write {path} ({error.strerror}): free some space or choose another run folder") from error


def read(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], Trajectory]]:
    """Yields (header, trajectory) in order; the header holds `schema`, `phase`, `step` and `return`.

    Raises UserError naming file and line where a line is broken or of another schema. A torn last line is no line.
    """
    for number, data in lines_of(path):
        if data.get("schema") != SCHEMA:
            schema = data.get("schema")
            raise UserError(f"{path}, line {number}: schema {schema!r} is not {SCHEMA}; read it with the version that wrote it")
        try:
            header = {name: data[name] for name in ("schema", "phase", "step")} | {"return": _float(data["return"])}
            trajectory = _to_trajectory(data)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path}, line {number}: not a trajectory ({type(error).__name__}: {error}); delete the line") from error
        yield header, trajectory


def encode(trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as plain JSON data, for a checkpoint's host state. Raises UserError where an `info` holds what JSON cannot."""
    return json.loads(dumps(_from_trajectory(trajectory), trajectory.task))


def decode(data: Mapping[str, Any]) -> Trajectory:
    """The inverse of `encode`. Raises UserError where the data are no trajectory."""
    try:
        return _to_trajectory(data)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"not a trajectory ({type(error).__name__}: {error}): the checkpoint is broken or of another version") from error


def truncate(path: str | os.PathLike[str], keep: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a JSONL file with only the lines whose dict satisfies `keep`; the old file stands until the new one is whole.

    A torn last line is dropped, a file that is not there is left so. Raises UserError naming any other broken line.
    """
    path = Path(path)
    if not path.exists():
        return
    with replacing(path) as unfinished, open(unfinished, "w", encoding="ascii") as file:
        for _, data in lines_of(path):
            if keep(data):
                file.write(json.dumps(data) + "\n")
        file.flush()
        os.fsync(file.fileno())


def merge(parts: Sequence[Path], path: Path, order: Callable[[dict[str, Any]], Any]) -> None:
    """Make one JSONL file, its lines in the order of `order`, of several, which go."""
    lines = sorted((data for part in parts for _, data in lines_of(part)), key=order)
    with replacing(path) as unfinished:
        unfinished.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
    for part in parts:
        part.unlink()


def mend(path: str | os.PathLike[str]) -> None:
    """Drop the torn last line that a killed process may have left, so that the next line starts on its own."""
    path = Path(path)
    if path.exists() and (size := path.stat().st_size):
        with open(path, "rb") as file:
            file.seek(size - 1)
            torn = file.read() != b"\n"
        if torn:
            truncate(path, lambda line: True)


def lines_of(path: str | os.PathLike[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number from 1, object) of a JSONL file.

    What follows the last line feed is a line only if it is whole. Raises UserError naming file and line otherwise.
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    data = json.loads(line)
                    if not isinstance(data, dict):
                        raise ValueError(f"an object was expected, not {type(data).__name__}")
                except (ValueError, RecursionError) as error:
                    if not line.endswith(b"\n"):  # a killed process tore it
                        return
                    raise UserError(f"{path}, line {number}: not a JSON object ({error}); delete the line") from error
                yield number, data
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): name a file of JSON lines") from error


def dumps(data: Mapping[str, Any], what: str) -> str:
    """`data` as one line of strict JSON. Raises UserError, naming `what` it is about, where that cannot be."""
    try:
        return json.dumps(_plain(data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{what} cannot be written down as JSON: {error}; put only plain data into an environment's info") from error


def _plain(x: Any) -> Any:
    """JSON data: NumPy becomes plain, a float that JSON lacks becomes {"$float": "nan"}."""
    if x is None or isinstance(x, str | int):
        return x
    if isinstance(x, np.generic | np.ndarray):
        x = x.tolist()
    if isinstance(x, Mapping):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    return {"$float": repr(x)} if isinstance(x, float) and not math.isfinite(x) else x


def _unplain(x: Any) -> Any:
    if isinstance(x, dict):
        return _float(x) if x.keys() == {"$float"} else {key: _unplain(value) for key, value in x.items()}
    return [_unplain(value) for value in x] if isinstance(x, list) else x


def _float(x: Any) -> float:
    return float(x["$float"] if isinstance(x, dict) else x)


def _from_trajectory(trajectory: Trajectory) -> dict[str, Any]:
    written: list[int] = []  # the identities of the calls so far, by index
    return {
        **{name: getattr(trajectory, name) for name in _PLAIN},
        "return": trajectory.total_reward,
        "opening": [message.to_dict() for message in trajectory.opening],
        "turns": [_from_turn(turn, written) for turn in trajectory.turns],
    }


def _from_turn(turn: Turn, written: list[int]) -> dict[str, Any]:
    return {
        "action": turn.action.to_dict(),
        "observation": [message.to_dict() for message in turn.observation],
        "reward": turn.reward,
        "rewards": turn.rewards,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
        "info": turn.info,
        **({"notes": [note.to_dict() for note in turn.notes]} if turn.notes else {}),
        "calls": [_from_call(call, written) for call in turn.calls],
    }


def _from_call(call: Call, written: list[int]) -> dict[str, Any]:
    parent = written.index(id(call.parent)) if id(call.parent) in written else None
    written.append(id(call))
    if parent is not None and call.parent is not None and call.extends(call.parent):
        prompt = {"parent": parent, "added": call.prompt[len(call.parent.ids) :]}
    else:
        prompt = {"parent": parent, "prompt": call.prompt}
    return {
        **prompt,
        "action": call.action,
        "sampler_logp": _digits(call.sampler_logp),
        "version": call.version,
        "entropy": None if call.entropy is None else _digits(call.entropy),
        "alternatives": call.alternatives,
        "alternative_logp": None if call.alternative_logp is None else [_digits(row) for row in call.alternative_logp],
        "sampling": vars(call.sampling),
        "finish_reason": call.finish_reason,
        "source": call.source,
        "key": call.key,
        "image_spans": call.image_spans,
    }


def _digits(x: np.ndarray) -> list[float]:
    """Nine significant digits: the shortest decimals that always name a float32 uniquely."""
    return [float(f"{value:.9g}") for value in x.tolist()]


def _to_trajectory(data: Mapping[str, Any]) -> Trajectory:
    calls: list[Call] = []
    turns = tuple(_to_turn(turn, calls) for turn in data["turns"])
    return Trajectory(_messages(data["opening"]), turns, **{name: data[name] for name in _PLAIN})


def _to_turn(data: Mapping[str, Any], calls: list[Call]) -> Turn:
    first = len(calls)
    for call in data["calls"]:
        calls.append(_to_call(call, calls))
    return Turn(
        calls=tuple(calls[first:]),
        action=Message.from_dict(data["action"]),
        observation=_messages(data["observation"]),
        reward=_float(data["reward"]),
        rewards=_unplain(data["rewards"]),
        terminated=data["terminated"],
        truncated=data["truncated"],
        info=_unplain(data["info"]),
        notes=_messages(data.get("notes", ())),
    )


def _to_call(data: Mapping[str, Any], calls: Sequence[Call]) -> Call:
    parent = None if data["parent"] is None else calls[data["parent"]]
    prompt = np.asarray(data["added" if "added" in data else "prompt"], np.int32)
    if parent is not None and "added" in data:
        prompt = np.concatenate([parent.ids, prompt])
    return Call(
        prompt=prompt,
        action=np.asarray(data["action"], np.int32),
        sampler_logp=_floats(data["sampler_logp"]),
        version=np.asarray(data["version"], np.int32),
        sampling=_to_sampling(data["sampling"]),
        finish_reason=data["finish_reason"],
        source=data["source"],
        key=tuple(data["key"]),
        entropy=None if data["entropy"] is None else _floats(data["entropy"]),
        alternatives=None if data["alternatives"] is None else np.asarray(data["alternatives"], np.int32),
        alternative_logp=None if data["alternative_logp"] is None else np.stack([_floats(row) for row in data["alternative_logp"]]),
        image_spans=tuple((start, end) for start, end in data["image_spans"]),
        parent=parent,
    )


def _to_sampling(data: Mapping[str, Any]) -> Sampling:
    lists: dict[str, Any] = {name: tuple(data[name]) for name in ("stop_ids", "stop_strings", "forced")}
    return Sampling(**{**data, **lists})


def _floats(values: Sequence[Any]) -> np.ndarray:
    return np.asarray([_float(value) for value in values], np.float32)


def _messages(data: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(map(Message.from_dict, data))
