"""`Confinement`: all that keeps a process inside, in the order in which it must be switched on."""

import functools
import os
import platform
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrl_jax.sandbox import kernel, landlock
from agentrl_jax.sandbox.isolation import Isolation
from agentrl_jax.sandbox.landlock import OpenRule
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.seccomp_filter import Rule, compile_filter
from agentrl_jax.sandbox.seccomp_policy import FilterOptions, snippet_rules, with_pid
from agentrl_jax.sandbox.syscall_numbers import architecture_of

MIN_ABI = 1  # of Landlock


@dataclass(frozen=True)
class Protections:
    """The parts of a confinement; the attack battery switches single ones off to see it fail."""

    isolation: bool = True
    limits: bool = True
    landlock: bool = True
    seccomp: bool = True
    closed_descriptors: bool = True


@dataclass(frozen=True)
class Confinement:
    """How the processes of one server are confined; `enter_isolation` to `restrict`, in order."""

    isolation: Isolation
    rules: Sequence[OpenRule]  # files that processes may use, beside their own folder
    abi: int  # of Landlock
    protections: Protections = Protections()
    counts_tasks: bool = True  # without the means to count them there may be no more than one
    policy: Callable[[FilterOptions], tuple[Rule, ...]] = snippet_rules
    machine: str = field(default_factory=platform.machine)

    def enter_isolation(self, folder: str, limits: SandboxLimits) -> None:
        """Raises OSError where the host cannot."""
        if self.protections.isolation:
            self.isolation.enter(folder, limits.disk_mb * 2**20)
        else:
            os.chdir(folder)

    def set_limits(
        self, limits: SandboxLimits, mapped_bytes: int, is_session: bool, own_tasks: int = 0
    ) -> None:
        """Set the limits that the kernel counts.

        Args:
            limits: of one snippet or call.
            mapped_bytes: the memory that the process has already.
            is_session: it raises its limit of CPU time before each call.
            own_tasks: processes that are not the snippet's.
        """
        if not self.protections.limits:
            return
        cpu = max(1, round(limits.cpu_seconds))
        memory = mapped_bytes + limits.memory_mb * 2**20
        bounds = {
            resource.RLIMIT_AS: memory,
            resource.RLIMIT_FSIZE: limits.disk_mb * 2**20,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_MSGQUEUE: 0,
        }
        if self.isolation.counts_tasks and self.protections.isolation:
            bounds |= {
                resource.RLIMIT_NPROC: limits.tasks + own_tasks,
                resource.RLIMIT_SIGPENDING: 256,
            }
        for kind, bound in bounds.items():
            resource.setrlimit(kind, (bound, bound))
        last = resource.RLIM_INFINITY if is_session else cpu + 1
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, last))

    def restrict(self, limits: SandboxLimits, folder_rights: int, may_execute: bool) -> None:
        """Let go of all files but those of the rules and the working folder, and of most system
        calls.

        Args:
            limits: whether it may start processes.
            folder_rights: on the working folder.
            may_execute: whether it may run programs.

        Raises:
            OSError: the kernel refuses.
        """
        kernel.prctl(kernel.SET_NO_NEW_PRIVILEGES, 1)
        if self.protections.landlock:
            folder_rules = landlock.open_rules([landlock.FileRule(".", folder_rights)])
            landlock.restrict([*self.rules, *folder_rules], self.abi)
            for rule in folder_rules:
                os.close(rule.descriptor)
        if self.protections.seccomp:
            kernel.install_filter(self.filter_program(limits, may_execute))

    def filter_program(
        self, limits: SandboxLimits, may_execute: bool, may_restrict: bool = False
    ) -> bytes:
        """The seccomp filter of this process; `may_restrict`: it may install Landlock's rules."""
        has_own_user = self.isolation.own_user and self.protections.isolation
        is_counted = self.isolation.counts_tasks and self.protections.isolation
        may_start = is_counted or not self.counts_tasks
        options = FilterOptions(
            may_fork=limits.subprocesses and may_start,
            may_start_threads=may_start,
            may_execute=may_execute,
            has_signal_scope=has_own_user or (self.abi >= 6 and self.protections.landlock),
            has_own_user=has_own_user,
            restricts_truncation=self.abi >= 3,
            may_restrict=may_restrict,
        )
        return with_pid(_compiled(self.policy, options, self.machine), os.getpid())


@functools.cache
def _compiled(
    policy: Callable[[FilterOptions], tuple[Rule, ...]], options: FilterOptions, machine: str
) -> bytes:
    return compile_filter(policy(options), architecture_of(machine))
