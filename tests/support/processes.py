"""Starts real processes that form one run over gloo, waits for them, and reads their run folder."""

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.forked import ForkedProcess, start_forked

from agentrl_jax.storage import jsonl
from agentrl_jax.storage.segments import segment_paths

ROOT = Path(__file__).parents[2]
SUPPORT = Path(__file__).parent


def process_environment(devices: int) -> dict[str, str]:
    """The environment variables of a process with that many devices, which compiles as tests do.

    Shapes and types are not checked, since every process would have to import the checker.
    """
    xla_flags = os.environ.get("XLA_FLAGS", "")
    return {
        **os.environ,
        # The last of repeated flags counts.
        "XLA_FLAGS": f"{xla_flags} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, SUPPORT.parent))),
    }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def start_processes(
    count: int,
    command: Sequence[object],
    devices: int = 1,
    process_flags: Sequence[Sequence[object]] = (),
) -> list[ForkedProcess]:
    """`python command...` in that many processes of one group, with flags for each process."""
    port = free_port()
    flags = [
        [f"--coordinator=localhost:{port}", f"--processes={count}", f"--process_id={p}"]
        if count > 1
        else []
        for p in range(count)
    ]
    flags = [[*each, *map(str, more)] for each, more in zip(flags, process_flags or [[]] * count)]
    return [
        start_forked([*map(str, command), *flags[p]], process_environment(devices), ROOT)
        for p in range(count)
    ]


def wait_for_processes(
    processes: Sequence[ForkedProcess], timeout: float = 600
) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each process."""
    try:
        return [
            (process.wait(timeout), *process.communicate(timeout=timeout)) for process in processes
        ]
    finally:
        for process in processes:
            process.kill()


def assert_success(processes: Sequence[ForkedProcess]) -> None:
    for status, output, errors in wait_for_processes(processes):
        assert status == 0, f"{output}\n{errors}"


def start_training(
    count: int,
    run_dir: Path,
    config: str = "letters_config.py",
    process_flags: Sequence[Sequence[str]] = (),
) -> list[ForkedProcess]:
    """The train command in that many processes, with a config of this folder."""
    command = ["-m", "agentrl_jax.launch.train", f"--config={SUPPORT / config}"]
    return start_processes(count, [*command, f"--run_dir={run_dir}"], process_flags=process_flags)


def read_metrics(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without wall-clock times."""
    return [
        {key: value for key, value in line.items() if not key.startswith("time/")}
        for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")
    ]


def sampled_tokens(run_dir: Path) -> dict[tuple[int, int, int], list[list[int]]]:
    """(step, group, sample) -> the tokens of each call, from the logs of all processes."""
    tokens = {}
    for path in segment_paths(run_dir / "trajectories"):
        for line in map(json.loads, path.read_text().splitlines()):
            tokens[line["step"], line["group"], line["sample"]] = [
                call["action"] for turn in line["turns"] for call in turn["calls"]
            ]
    return tokens


def evaluation_table(run_dir: Path) -> Any:
    return json.loads((run_dir / "summary.json").read_text())["table"]
