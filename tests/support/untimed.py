"""The times of calls and turns, the only thing in which equal runs may differ, and trajectories
without them.
"""

from pathlib import Path
from typing import Any

from agentrl_jax.storage import jsonl
from agentrl_jax.storage.segments import segment_paths
from agentrl_jax.trajectories import Call, CallTime, Turn, TurnTime


def call_time(call: Call) -> CallTime:
    assert call.time is not None
    return call.time


def turn_time(turn: Turn) -> TurnTime:
    assert turn.time is not None
    return turn.time


def without_times(x: Any) -> Any:
    """JSON data of trajectories without their keys "time"."""
    if isinstance(x, dict):
        return {key: without_times(value) for key, value in x.items() if key != "time"}
    return [without_times(value) for value in x] if isinstance(x, list) else x


def untimed_lines(path: Path) -> list[Any]:
    """The lines of a trajectory log without times."""
    return [without_times(line) for _, line in jsonl.read_lines(path)]


def untimed_log(run_dir: Path) -> list[Any]:
    """The trajectory log of a run without times."""
    paths = segment_paths(run_dir / "trajectories")
    return [line for path in paths for line in untimed_lines(path)]
