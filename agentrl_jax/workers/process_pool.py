"""`ProcessPool`: environments in worker processes, which may run another interpreter."""

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.worker_confinement import WorkerSandbox
from agentrl_jax.workers.memory_watch import MemoryWatch
from agentrl_jax.workers.observation_limit import DEFAULT_LIMIT, ObservationLimit
from agentrl_jax.workers.pool import completed_future
from agentrl_jax.workers.server import MAX_REPLY_BYTES
from agentrl_jax.workers.variables import worker_variables
from agentrl_jax.workers.worker_process import WorkerProcess


class ProcessPool:
    """Environments in `count` processes.

    A process that dies, times out or exceeds `memory_limit` is replaced.
    """

    def __init__(
        self,
        count: int,
        interpreter: str = "",
        memory_limit: int = 0,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        command: Sequence[str] = (),
        observations: ObservationLimit = DEFAULT_LIMIT,
        pass_variables: Collection[str] = (),
        sandbox: WorkerSandbox | None = None,
    ) -> None:
        """Checks the arguments; `start` starts the processes.

        Args:
            count: processes.
            interpreter: a python that has this package, JAX not needed; empty: this one.
            memory_limit: resident bytes of each process with all that it started; 0: no limit.
            max_reply_bytes: the size of the largest reply.
            command: replaces a worker's command; the number of its status pipe is appended.
            observations: how much text an environment may send in one turn.
            pass_variables: environment variables beyond those of `worker_variables`.
            sandbox: of the processes; None: they have none.
        """
        if count < 1:
            raise UserError(
                f"workers need at least one process, not {count}; "
                "0 in the config means this process"
            )
        if interpreter:
            check_interpreter(interpreter)
        self._environment = {
            **worker_variables(os.environ, pass_variables),
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        if not interpreter:
            self._environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._python = interpreter or sys.executable
        self._sandbox = sandbox or WorkerSandbox()
        self._sandbox.check()
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # of sandboxed processes
        self._command = command or [
            self._python,
            "-m",
            "agentrl_jax.workers.server",
            str(memory_limit),
            str(max_reply_bytes),
            str(observations.max_bytes),
            str(int(observations.truncate)),
        ]
        self._memory_limit = memory_limit
        self._memory: MemoryWatch | None = None
        self._server_command = self._command  # in the sandbox, once that has started
        self._count, self._max_reply_bytes = count, max_reply_bytes
        self._current: dict[int, WorkerProcess] = {}
        self._processes: set[WorkerProcess] = set()

    def request(
        self, op: str, env_id: int, timeout: float, **arguments: Any
    ) -> "asyncio.Future[Any]":
        process = self._current.get(env_id % self._count)
        if process is None or process.is_closing:
            if op == "close":
                return completed_future(None)
            process = self._spawn(env_id % self._count)
        return process.request(timeout, op=op, env_id=env_id, **arguments)

    def location(self, env_id: int) -> str:
        process = self._current.get(env_id % self._count)
        if process is None:
            return f"process {env_id % self._count + 1}"
        return process.name + (
            ", busy with another one"
            if process.request_queue.is_busy_with_other_env(env_id)
            else ""
        )

    def _spawn(self, i: int) -> WorkerProcess:
        self._processes = {process for process in self._processes if not process.has_exited}
        self._current[i] = WorkerProcess(
            i + 1, self._server_command, self._environment, self._max_reply_bytes, self._memory
        )
        self._processes.add(self._current[i])
        return self._current[i]

    async def start(self) -> None:
        self._memory = MemoryWatch(self._memory_limit) if self._memory_limit else None
        if self._sandbox.enabled and self._folder is None:
            await self._start_sandbox()
        try:
            await asyncio.gather(*(self._spawn(i).start_task for i in range(self._count)))
        except OSError as error:
            raise UserError(
                f"the worker {self._command[0]} cannot be started ({error.strerror}): name a python"
            ) from error

    async def _start_sandbox(self) -> None:
        """Raises UserError where nothing here can confine a worker."""
        folder = tempfile.TemporaryDirectory(prefix="agentrl-workers-")
        module = "agentrl_jax.workers.confined_server"
        sandbox = [json.dumps(dataclasses.asdict(self._sandbox)), folder.name]
        start = [self._python, "-m", module, *sandbox]
        try:
            description = await asyncio.to_thread(check_sandbox, start, self._environment)
        except BaseException:
            folder.cleanup()
            raise
        print(f"environments run in the sandbox: {description}", file=sys.stderr)
        self._folder, self._server_command = folder, [*start, *self._command[3:]]

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._processes))
        self._processes, self._current = set(), {}
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder, self._server_command = None, self._command


def check_sandbox(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What protects a worker that is started so. Raises UserError if nothing can."""
    process = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    if process.returncode:
        raise UserError((process.stderr.strip().splitlines() or ["no reason given"])[-1])
    return process.stdout.strip()


def check_interpreter(interpreter: str) -> None:
    """Raises UserError if this is no python that has this package."""
    advice = (
        "name a python in which agentrl_jax, gymnasium and numpy are installed, JAX is not needed"
    )
    try:
        process = subprocess.run(
            [interpreter, "-c", "import agentrl_jax.workers.server"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(
            f"the interpreter {interpreter} cannot be run ({error}): {advice}"
        ) from error
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"the interpreter {interpreter} cannot run a worker ({reason}): {advice}")
