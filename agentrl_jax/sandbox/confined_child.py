"""What the zygote's child does: it confines itself, reads its snippet, and runs it."""

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Sequence
from typing import NoReturn

from agentrl_jax.sandbox import kernel, landlock
from agentrl_jax.sandbox.bubblewrap_child import execute_bubblewrap
from agentrl_jax.sandbox.confinement import Confinement
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.snippet_run import STARTED, prepare, read_request, run_snippet
from agentrl_jax.sandbox.zygote_protocol import SESSION_DESCRIPTORS, SnippetEnd, ZygoteConfig

NICENESS = 10  # of snippets whose folder the zygote watches
_FIRST_FREE = 8  # descriptors from here on are in nobody's way


def run_child(
    config: ZygoteConfig,
    confinement: Confinement,
    limits: SandboxLimits,
    folder: str,
    mapped_bytes: int,
    descriptors: Sequence[int],
) -> NoReturn:
    """Run the snippet of a start; ends the process.

    Args:
        config: the zygote's.
        confinement: of its snippets.
        limits: of this one.
        folder: where it works.
        mapped_bytes: what the zygote has mapped.
        descriptors: request, stdin, stdout, stderr, leash; of a session: its two pipes too.
    """
    leash = descriptors[4]
    try:
        zygote = os.getppid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        _prefer_when_out_of_memory()
        if not (confinement.isolation.private_folder or config.launcher):
            _give_way()
        confinement.enter_isolation(folder, limits)
        kernel.prctl(kernel.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != zygote:
            os._exit(1)
        is_session = len(descriptors) == SESSION_DESCRIPTORS
        request, leash, *session = _moved(descriptors)
        if config.launcher:
            execute_bubblewrap(config, confinement, limits, folder, request, leash, session)
        confinement.set_limits(limits, mapped_bytes, is_session)
        confinement.restrict(limits, landlock.WRITE | landlock.EXECUTE, limits.subprocesses)
        fields = read_request(request)
        prepare(folder, fields)
    except BaseException as error:
        failure = f"{type(error).__name__}: {error}"[:1000]
        with contextlib.suppress(OSError):
            socket.socket(fileno=leash).send(SnippetEnd(0, failure=failure).encode())
        os._exit(1)
    switches = confinement.protections
    open_files = limits.open_files if switches.limits else 0
    host = socket.socket(fileno=leash)
    run_snippet(
        fields, lambda: host.send(STARTED), session, open_files, switches.closed_descriptors
    )


def _moved(descriptors: Sequence[int]) -> list[int]:
    """The standard streams at 0 to 2; the other descriptors, where they are in nobody's way."""
    request, *streams = descriptors[:4]
    others = [fcntl.fcntl(d, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for d in descriptors[4:]]
    request = fcntl.fcntl(request, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    streams = [fcntl.fcntl(d, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for d in streams]
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
    return [request, *others]


def _give_way() -> None:
    """Run after the zygote where both want the processor: it sees in time that the folder, which it
    has to watch, is full.
    """
    os.nice(NICENESS)
    _write_own("autogroup", b"%d" % NICENESS)  # kernels that weigh sessions look at this alone


def _prefer_when_out_of_memory() -> None:
    """Let the kernel end this process before the training run, where memory is short."""
    _write_own("oom_score_adj", b"1000")


def _write_own(name: str, data: bytes) -> None:
    """Write one of this process's files in /proc, where there is one and it may."""
    with contextlib.suppress(OSError):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, data)
        os.close(descriptor)
