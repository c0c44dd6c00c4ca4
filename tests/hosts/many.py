"""Starts real processes that make one run over gloo, and waits for them."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def environment(devices: int) -> dict[str, str]:
    """Of a process with so many devices, compiling as tests do; no checks of types and shapes, which every process would have to import."""
    return {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}",  # the last one holds
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE.parent, HERE))),
    }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def start(count: int, command: Sequence[object], devices: int = 1, own: Sequence[Sequence[object]] = ()) -> list[subprocess.Popen[str]]:
    """`python command...` so many times, with the flags that tell each process of the others, if any, and those that are its `own`."""
    port = free_port()
    flags = [[f"--coordinator=localhost:{port}", f"--processes={count}", f"--process_id={p}"] if count > 1 else [] for p in range(count)]
    flags = [[*each, *map(str, more)] for each, more in zip(flags, own or [[]] * count)]
    return [
        subprocess.Popen(
            [sys.executable, *map(str, command), *flags[p]], cwd=ROOT, env=environment(devices), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for p in range(count)
    ]  # fmt: skip


def finish(processes: Sequence[subprocess.Popen[str]], timeout: float = 600) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each."""
    try:
        return [(process.wait(timeout), *process.communicate(timeout=timeout)) for process in processes]
    finally:
        for process in processes:
            process.kill()


def succeed(processes: Sequence[subprocess.Popen[str]]) -> None:
    for status, out, errors in finish(processes):
        assert status == 0, f"{out}\n{errors}"
