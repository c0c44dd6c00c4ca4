"""The zygote: a small clean process that forks a confined process for each snippet.

`python -S -s -P -c ... FD` reads its `ZygoteConfig` from stdin and starts from the socket FD. It
never reads a snippet: the process that runs it does, once it is confined.
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_jax.sandbox import cells, folders, kernel, landlock, offered_packages
from agentrl_jax.sandbox.confined_child import run_child
from agentrl_jax.sandbox.confinement import MIN_ABI, Confinement, Protections
from agentrl_jax.sandbox.isolation import Isolation, best_isolation
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.zygote_protocol import (
    MAX_PACKET,
    PROGRAM_DESCRIPTORS,
    SESSION_DESCRIPTORS,
    SnippetEnd,
    ZygoteConfig,
    unpack_start,
)

DISK_CHECK_SECONDS = 0.01
BURIAL_SECONDS = 2.0  # that a killed group may take to be gone
MAX_MAPPED_BYTES = 512 * 2**20  # by Python and what it has imported, where it cannot be read


@dataclass
class Child:
    """A process that runs a snippet; it leads its process group, which nothing can leave."""

    pid: int
    leash: socket.socket
    folder: str
    deadline: float  # infinite for sessions
    disk_bytes: int
    is_late: bool = False
    has_filled_disk: bool = False

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)  # it does not lead its group yet

    def has_group(self) -> bool:
        """Whether processes of its group are left, dead or alive; its id is not used again before
        they are gone.
        """
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


class Zygote:
    """The loop that starts, watches and buries snippets."""

    def __init__(self, config: ZygoteConfig, control: socket.socket) -> None:
        self._config, self._control = config, control
        self._children: dict[int, Child] = {}
        self._by_leash: dict[int, Child] = {}
        self._ended: list[tuple[float, Child, SnippetEnd]] = []
        self._poll = select.poll()
        self._base = folders.make_reachable_folder("agentrl-sandbox-")
        with contextlib.suppress(PermissionError):  # as in a sandboxed worker
            os.chmod(self._base, 0o755)
        self._shared = os.path.join(self._base, "work")  # mounted on, each in its own view
        os.mkdir(self._shared, 0o700)
        self._next_folder = self._mapped_bytes = 0

    def run(self) -> None:
        """Serve until the host closes its socket."""
        try:
            self._confinement = self._prepare()
        except Exception as error:
            self._control.send(json.dumps({"error": f"{error}"[:1000]}).encode())
            self._remove_base()
            return
        isolation = self._confinement.isolation
        self._uses_mounts = isolation.private_folder and self._confinement.protections.isolation
        self._watches_disk = self._confinement.protections.limits and not self._uses_mounts
        hello = {
            "abi": self._confinement.abi,
            "isolation": [
                isolation.own_user,
                isolation.user_namespace,
                isolation.private_folder,
            ],
            "folder": self._base,
        }
        self._control.send(json.dumps(hello).encode())
        wakeup, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(wakeup, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for descriptor in (self._control.fileno(), wakeup):
            self._poll.register(descriptor, select.POLLIN)
        is_open = True
        while is_open or self._children or self._ended:
            for descriptor, event in self._poll.poll(self._timeout()):
                if descriptor == self._control.fileno():
                    is_open = is_open and self._accept()
                elif descriptor == wakeup:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wakeup, 4096)
                else:
                    self._hear(descriptor, event)
            self._enforce()
            self._reap()
            self._report_ended()
            if not is_open:
                for child in self._children.values():
                    child.kill()
        self._remove_base()

    def _prepare(self) -> Confinement:
        """Import what snippets may want, and find out what this host can enforce."""
        config = self._config
        offered_packages.offer(config.packages)
        for name in config.modules:
            importlib.import_module(name)
        kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)
        protections = Protections(*config.protections)
        abi = min(kernel.landlock_abi(), config.max_abi)
        if abi < MIN_ABI and protections.landlock and not config.launcher:
            raise OSError("the kernel has no Landlock (Linux 5.13)")
        if config.isolation is None:
            folders.expose([*(rule.path for rule in config.rules), *config.own_files])
            isolation = best_isolation(self._shared)
        else:
            isolation = Isolation(*config.isolation)
        confinement = Confinement(isolation, landlock.open_rules(config.rules), abi, protections)
        for may_fork in (False, True):  # compiled once, here
            limits = SandboxLimits(subprocesses=may_fork)
            if config.launcher:
                confinement.filter_program(limits, may_execute=True, may_restrict=True)
            else:
                confinement.filter_program(limits, may_execute=may_fork)
        cells.warm_up()
        self._mapped_bytes = _mapped_bytes()
        gc.collect()
        gc.freeze()  # else collections in children would copy every page
        return confinement

    def _accept(self) -> bool:
        """Start a snippet that the host asks for; False: the host is gone."""
        data, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET, SESSION_DESCRIPTORS)
        if not data:
            self._poll.unregister(self._control.fileno())
            return False
        try:
            limits, seconds = unpack_start(data)
            if len(descriptors) in (PROGRAM_DESCRIPTORS, SESSION_DESCRIPTORS):
                self._start(limits, seconds, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _start(self, limits: SandboxLimits, seconds: float, descriptors: Sequence[int]) -> None:
        leash = socket.socket(fileno=os.dup(descriptors[4]))
        folder = self._shared
        if not self._uses_mounts:
            self._next_folder += 1
            folder = os.path.join(self._base, f"work-{self._next_folder}")
            os.mkdir(folder, 0o700)
        try:
            pid = os.fork()
        except OSError as error:
            leash.send(SnippetEnd(0, failure=f"no process could be started: {error}").encode())
            leash.close()
            return
        if pid == 0:
            run_child(
                self._config, self._confinement, limits, folder, self._mapped_bytes, descriptors
            )
        deadline = time.monotonic() + seconds if seconds else float("inf")
        child = Child(pid, leash, folder, deadline, limits.disk_mb * 2**20)
        self._children[pid] = self._by_leash[leash.fileno()] = child
        self._poll.register(leash.fileno(), select.POLLIN)
        with contextlib.suppress(OSError):
            leash.send(b"%d" % pid)

    def _hear(self, descriptor: int, event: int) -> None:
        """A byte of the host interrupts a snippet; the end of its leash kills it."""
        child = self._by_leash.get(descriptor)
        if child is None:
            return
        data = b""
        if event & select.POLLIN:
            with contextlib.suppress(OSError):
                data = child.leash.recv(16)
        if data:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGINT)
        else:
            self._poll.unregister(descriptor)
            child.kill()

    def _timeout(self) -> int:
        """Milliseconds until something must be enforced; -1: nothing."""
        if self._ended:
            return 5
        if not self._children:
            return -1
        if self._watches_disk:
            return int(DISK_CHECK_SECONDS * 1000)
        first = min(child.deadline for child in self._children.values())
        if first == float("inf"):
            return -1
        return max(0, int((first - time.monotonic()) * 1000) + 1)

    def _enforce(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if now >= child.deadline and not child.is_late:
                child.is_late = True
                child.kill()
            is_checked = self._watches_disk and not child.has_filled_disk
            if is_checked and folders.exceeds(child.folder, child.disk_bytes):
                child.has_filled_disk = True
                child.kill()

    def _reap(self) -> None:
        """Bury the dead, and report those that led a group once all of it is killed."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            child = self._children.pop(dead.si_pid, None)
            if child is not None:
                child.kill()  # whatever it left behind; its id is taken until it is buried
            _, status, usage = os.wait4(dead.si_pid, 0)
            if child is not None:
                seconds = usage.ru_utime + usage.ru_stime
                end = SnippetEnd(status, seconds, child.is_late, child.has_filled_disk)
                self._ended.append((time.monotonic(), child, end))

    def _report_ended(self) -> None:
        """Report the snippets of whose groups nothing is left."""
        now, waiting = time.monotonic(), []
        for since, child, end in self._ended:
            if child.has_group() and now < since + BURIAL_SECONDS:
                waiting.append((since, child, end))
            else:
                self._report(child, end)
        self._ended = waiting

    def _report(self, child: Child, end: SnippetEnd) -> None:
        with contextlib.suppress(OSError):
            child.leash.send(end.encode())
        self._by_leash.pop(child.leash.fileno(), None)
        with contextlib.suppress(KeyError):
            self._poll.unregister(child.leash.fileno())
        child.leash.close()
        if child.folder != self._shared:
            folders.remove(child.folder)

    def _remove_base(self) -> None:
        folders.remove(self._base)


def _mapped_bytes() -> int:
    """The address space of this process, or, in a sandboxed worker, a bound of it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except PermissionError:
        return MAX_MAPPED_BYTES


def main(control_descriptor: int) -> None:
    """Serve the host at the other end of a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    control = socket.socket(fileno=control_descriptor)
    os.set_inheritable(control_descriptor, False)
    config = ZygoteConfig.decode(sys.stdin.buffer.read())
    os.environ.pop("TRANSFORMERS_NO_ADVISORY_WARNINGS", None)  # which this package sets
    sys.path[:] = list(config.search_path)
    Zygote(config, control).run()
