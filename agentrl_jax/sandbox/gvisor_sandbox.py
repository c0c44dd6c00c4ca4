"""`GVisorSandbox`: each snippet behind a kernel of its own, gVisor's `runsc`."""

import base64
import contextlib
import json
import os
import resource
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.sandbox.bubblewrap import package_files
from agentrl_jax.sandbox.captured_output import CapturedOutput, encode_request
from agentrl_jax.sandbox.confinement import Confinement
from agentrl_jax.sandbox.contained_run import PACKAGES, WORK
from agentrl_jax.sandbox.isolation import Isolation
from agentrl_jax.sandbox.limits import Limit, SandboxLimits
from agentrl_jax.sandbox.readable_files import (
    module_rules,
    python_rules,
    standard_search_path,
    system_rules,
)
from agentrl_jax.sandbox.sandbox import ReplayedSession, Sandbox, check_snippet
from agentrl_jax.sandbox.snippet import Outcome, Snippet, limit_of_error
from agentrl_jax.sandbox.zygote_client import VARIABLES

START_SECONDS = 20.0  # that gVisor may take beyond a snippet's time
ATTEMPTS = 3  # containers rarely end before they start where a machine is overloaded
_REQUEST = "/run/request"
_PYTHON_BYTES = 64 * 2**20
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from agentrl_jax.sandbox.contained_run import main_in_gvisor; main_in_gvisor(sys.argv[1])"
)


class GVisorSandbox(Sandbox):
    """Snippets in containers of `runsc` with a root of their own; sessions run code again."""

    def __init__(self, limits: SandboxLimits, modules: tuple[str, ...] = ()) -> None:
        """Makes the root's folders.

        Raises:
            UserError: `runsc` or a module is not installed.
        """
        super().__init__(limits)
        program = shutil.which("runsc")
        if program is None:
            raise UserError("gVisor is not installed: install runsc")
        self._packages, rules = module_rules(modules)
        paths = [rule.path for rule in [*system_rules(), *python_rules(), *rules]]
        self._mounts = {
            path: path for path in paths if os.path.exists(path) and not path.startswith("/dev/")
        } | {path: f"{PACKAGES}/agentrl_jax/{os.path.basename(path)}" for path in package_files()}
        self._folder = tempfile.mkdtemp(prefix="agentrl-gvisor-")
        self._base = [program, "--root", f"{self._folder}/state", "--network=none"]
        self._base += ["--ignore-cgroups"] + ([] if os.geteuid() == 0 else ["--rootless"])
        self._root = f"{self._folder}/root"
        for source, target in self._mounts.items():
            _make_mount_point(self._root + target, os.path.isdir(source))
        for target in ("/proc", "/dev", "/tmp", WORK):
            _make_mount_point(self._root + target, is_folder=True)
        _make_mount_point(self._root + _REQUEST, is_folder=False)
        self.description = "gVisor's kernel, its own root, seccomp inside"

    def run(self, snippet: Snippet, limits: SandboxLimits | None = None) -> Outcome:
        limits = limits or self.limits
        check_snippet(snippet, limits)
        for attempt in range(ATTEMPTS):
            try:
                return self._run_once(snippet, limits)
            except EnvironmentFailure:  # no code has run
                if attempt == ATTEMPTS - 1:
                    raise
        raise AssertionError("there is at least one attempt")

    def _run_once(self, snippet: Snippet, limits: SandboxLimits) -> Outcome:
        """Raises EnvironmentFailure where the container did not start."""
        name, line = f"snippet-{secrets.token_hex(8)}", f"{secrets.token_hex(16)}\n"
        with tempfile.TemporaryDirectory(dir=self._folder) as bundle:
            Path(bundle, "request").write_bytes(encode_request(snippet))
            Path(bundle, "stdin").write_text(snippet.stdin, errors="replace")
            config = self._container(bundle, line, limits)
            Path(bundle, "config.json").write_text(json.dumps(config))
            try:
                return self._run_container(bundle, name, line, limits)
            finally:
                self._delete(name)

    def session(self, seed: int = 0, limits: SandboxLimits | None = None) -> ReplayedSession:
        return ReplayedSession(self, seed, limits)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run_container(self, bundle: str, name: str, line: str, limits: SandboxLimits) -> Outcome:
        start = time.monotonic()
        with open(f"{bundle}/stdin", "rb") as stdin:
            process = subprocess.Popen(
                [*self._base, "run", "--bundle", bundle, name],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        assert process.stdout is not None and process.stderr is not None
        with process.stdout as out, process.stderr as err:
            output = CapturedOutput(
                out.fileno(),
                err.fileno(),
                limits.output_kb * 1024 + len(line),
                lambda: self._kill(process, name),
            )
            is_late = _collect(process, output, line, limits)
            if is_late:
                self._kill(process, name)
            code = process.wait()
            output.drain()
        seconds = time.monotonic() - start
        if not output.stdout.startswith(line):
            reason = output.stderr.strip().rpartition("\n")[2] or f"status {code}"
            raise EnvironmentFailure(f"gVisor failed: {reason[:500]}", "died")
        return _outcome(output, len(line), code, is_late, seconds)

    def _kill(self, process: "subprocess.Popen[bytes]", name: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        self._delete(name)

    def _delete(self, name: str) -> None:
        subprocess.run(
            [*self._base, "delete", "--force", name],
            capture_output=True,
            env={"PATH": os.defpath},
            check=False,
        )

    def _container(self, bundle: str, line: str, limits: SandboxLimits) -> dict[str, Any]:
        """The container in the format of the Open Container Initiative."""
        confinement = Confinement(Isolation(own_user=True, private_folder=True), (), 0)
        program = confinement.filter_program(limits, limits.subprocesses)
        start = {
            "rlimits": [
                (resource.RLIMIT_AS, _PYTHON_BYTES + limits.memory_mb * 2**20),
                (resource.RLIMIT_FSIZE, limits.disk_mb * 2**20),
                (resource.RLIMIT_CPU, max(1, round(limits.cpu_seconds))),
                (resource.RLIMIT_NPROC, limits.tasks),
                (resource.RLIMIT_CORE, 0),
            ],
            "filter": base64.b64encode(program).decode(),
            "line": line,
            "request": _REQUEST,
            "search_path": standard_search_path(),
            "packages": self._packages,
            "open_files": limits.open_files,
        }
        python = [sys._base_executable, "-S", "-s", "-P", "-c", _PROGRAM]  # type: ignore[attr-defined]
        sources = self._mounts | {f"{bundle}/request": _REQUEST}
        binds = [
            {"destination": target, "source": source, "type": "bind", "options": ["ro", "rbind"]}
            for source, target in sources.items()
        ]
        work = ["nosuid", "nodev", f"size={limits.disk_mb}m", "mode=1777"]
        return {
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": 65534, "gid": 65534},
                "args": [*python, json.dumps(start), PACKAGES],
                "env": [f"{name}={value}" for name, value in VARIABLES.items()],
                "cwd": WORK,
                "noNewPrivileges": True,
                "capabilities": {},
            },
            "root": {"path": self._root, "readonly": True},
            "hostname": "sandbox",
            "mounts": [
                {"destination": "/proc", "source": "proc", "type": "proc"},
                {"destination": WORK, "source": "tmpfs", "type": "tmpfs", "options": work},
                *binds,
            ],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]
            },
        }


def _make_mount_point(path: str, is_folder: bool) -> None:
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
    if not is_folder:
        Path(path).touch()


def _collect(
    process: "subprocess.Popen[bytes]", output: CapturedOutput, line: str, limits: SandboxLimits
) -> bool:
    """Read output until the container has ended; True: it was late.

    Its time begins with the line that it prints before the snippet's code runs.
    """
    deadline, has_started = time.monotonic() + START_SECONDS, False
    ended = os.pidfd_open(process.pid)
    try:
        while True:
            if not has_started and output.stdout.startswith(line):
                has_started, deadline = True, time.monotonic() + limits.seconds
            poll = select.poll()
            for descriptor in (*output.open_streams, ended):
                poll.register(descriptor, select.POLLIN)
            milliseconds = int((deadline - time.monotonic()) * 1000) + 1
            ready = [descriptor for descriptor, _ in poll.poll(max(0, milliseconds))]
            if not ready:
                return True
            for descriptor in ready:
                if descriptor != ended:
                    output.read(descriptor)
            if ready == [ended] or output.is_flood:
                return False
    finally:
        os.close(ended)


def _outcome(
    output: CapturedOutput, skipped: int, code: int, is_late: bool, seconds: float
) -> Outcome:
    number = -code if code < 0 else code - 128 if 128 < code <= 192 else None
    limit: Limit | None = "output" if output.is_flood else "time" if is_late else None
    if number == signal.SIGXCPU:
        limit = limit or "cpu"
    elif number == signal.SIGXFSZ:
        limit = limit or "disk"
    stdout, stderr = output.stdout[skipped:], output.stderr
    status = None if limit or number else code
    if limit is None and code:
        limit = limit_of_error(stderr)
    return Outcome(stdout, stderr, status, number, limit, seconds)
