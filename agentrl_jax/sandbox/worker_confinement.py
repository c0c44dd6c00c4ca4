"""A worker process in the sandbox: it confines itself, with all environments that it will run."""

import os
import platform
import sys
import tempfile
from dataclasses import dataclass

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox import kernel, landlock
from agentrl_jax.sandbox.confinement import MIN_ABI, Confinement
from agentrl_jax.sandbox.isolation import Isolation, first_isolation
from agentrl_jax.sandbox.landlock import READ, RUN, WRITE, FileRule
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.readable_files import system_rules
from agentrl_jax.sandbox.seccomp_policy import worker_rules

_SYSTEM = ("/usr", "/opt", "/etc/alternatives", "/etc/fonts", "/etc/ssl", "/etc/mime.types")
_KERNEL = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system")
_ISOLATIONS = (
    Isolation(private_folder=True),
    Isolation(user_namespace=True, private_folder=True),
    Isolation(),
)


@dataclass
class WorkerSandbox:
    """The sandbox of worker processes (docs/sandbox.md); off unless enabled."""

    enabled: bool = False
    read_folders: tuple[str, ...] = ()  # beyond Python, its packages and the system's programs
    write_folders: tuple[str, ...] = ()  # beyond a temporary folder that each process has
    disk_mb: int = 256  # of the temporary folder

    def check(self) -> None:
        """Raises UserError where a folder is missing, or there is no room on the disk."""
        folders = (*self.read_folders, *self.write_folders)
        if self.enabled and (missing := [path for path in folders if not os.path.exists(path)]):
            raise UserError(f"the sandbox of the workers should show {missing[0]}: there is none")
        if self.disk_mb < 1:
            raise UserError(f"the sandbox's disk_mb must be at least 1, not {self.disk_mb}")


def confine_worker(sandbox: WorkerSandbox, folder: str) -> str:
    """Confine this process, which has one thread; what protects it, in words.

    Args:
        sandbox: what it may read and write.
        folder: an empty folder, which becomes its temporary folder.

    Raises:
        UserError: this machine cannot.
    """
    sandbox.check()
    if platform.system() != "Linux":
        raise UserError(f"the sandbox of the workers needs Linux, not {platform.system()}")
    abi = kernel.landlock_abi()
    if abi < MIN_ABI:
        raise UserError("the sandbox of the workers needs Landlock (Linux 5.13)")
    limits = SandboxLimits(disk_mb=sandbox.disk_mb, subprocesses=True)
    if len(os.listdir("/proc/self/task")) > 1:
        raise UserError("the sandbox of the workers cannot confine a process with threads")
    work = os.getcwd()
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path)}
    rules = [
        *system_rules(),
        *(FileRule(path, RUN) for path in (*_SYSTEM, *sorted(python))),
        *(FileRule(path, READ) for path in (*_KERNEL, f"/proc/{os.getpid()}")),
        *(FileRule(path, RUN) for path in sandbox.read_folders),
        *(FileRule(path, WRITE | RUN) for path in sandbox.write_folders),
    ]
    try:
        isolation = first_isolation(_ISOLATIONS, folder)
        opened = landlock.open_rules(rules)
        confinement = Confinement(isolation, opened, abi, counts_tasks=False, policy=worker_rules)
        confinement.enter_isolation(folder, limits)
        confinement.restrict(limits, WRITE | RUN, may_execute=True)
        for rule in opened:
            os.close(rule.descriptor)
        os.chdir(work)
    except OSError as error:
        raise UserError(f"the sandbox of the workers cannot be used here: {error}") from error
    os.environ.update(HOME=folder, TMPDIR=folder)
    tempfile.tempdir = folder
    disk = f"{sandbox.disk_mb} MB" if isolation.private_folder else "no bound"
    return f"Landlock {abi}, seccomp without network, a temporary folder of {disk}"
