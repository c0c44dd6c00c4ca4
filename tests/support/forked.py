"""Python programs that fork from a process that has imported what most of them import.

A program has its own arguments, environment variables and devices, and ends as a new interpreter
would; only the three seconds of imports are shared.
"""

import atexit
import contextlib
import functools
import gc
import io
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

# None of them starts a thread of Python or of JAX, or defines the flags of a command.
PRELOADED = (
    "agentrl_jax.algorithms.methods",
    "agentrl_jax.distributed.process_group",
    "agentrl_jax.envs",
    "agentrl_jax.launch.cli",
    "agentrl_jax.training.loop",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "ml_collections.config_flags",
    "tensorboardX",
)


@dataclass(frozen=True)
class ForkedProcess:
    """The part of `subprocess.Popen` that tests use; output goes to files of a folder."""

    process: ForkServerProcess
    folder: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.process.name, timeout)
        return self.process.exitcode

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        self.wait(timeout)
        return self._text("stdout"), self._text("stderr")

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start_forked(
    command: Sequence[str], environment: Mapping[str, str], folder: str | Path, stdin: str = ""
) -> ForkedProcess:
    """`python command...` in a folder; command is `-m module ...` or `file.py ...`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    files = Path(tempfile.mkdtemp(dir=_output_folder().name))
    (files / "stdin").write_text(stdin, encoding="utf-8")
    arguments = (list(command), dict(environment), str(folder), files)
    process = context.Process(target=_run_program, args=arguments, name=" ".join(command))
    process.start()
    return ForkedProcess(process, files)


def run_forked(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str | Path,
    stdin: str = "",
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """The same to its end, as `subprocess.run` with captured output."""
    process = start_forked(command, environment, folder, stdin)
    try:
        output, errors = process.communicate(timeout)
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.wait(timeout), output, errors)


@functools.cache
def _output_folder() -> tempfile.TemporaryDirectory[str]:
    """It is deleted when the tests end."""
    return tempfile.TemporaryDirectory()


def _run_program(command: list[str], environment: dict[str, str], folder: str, files: Path) -> None:
    gc.freeze()  # what was imported before stays
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(files)
    try:
        _run_main(command)
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        atexit._run_exitfuncs()


def _redirect(files: Path) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = os.open(files / name, os.O_CREAT | (os.O_WRONLY if number else os.O_RDONLY))
        os.dup2(file, number)
        os.close(file)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8")


def _run_main(command: list[str]) -> None:
    """Run the program as `__main__`, from the folder that Python would search first."""
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")
