"""Which system calls a snippet and a worker process may make, as rules of a filter."""

import errno
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from agentrl_jax.sandbox.seccomp_filter import Condition, Rule


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FILES = _names("""
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek close close_range
openat open creat access faccessat faccessat2 stat lstat fstat newfstatat statx statfs fstatfs
readlink readlinkat getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir unlink unlinkat
rename renameat renameat2 link linkat symlink symlinkat mknod mknodat ftruncate fallocate fadvise64
readahead sendfile copy_file_range fsync fdatasync sync_file_range flock dup dup2 dup3 pipe pipe2
umask poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
epoll_pwait2 eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime shutdown recvfrom
getsockname getpeername getsockopt
""")
_PROCESS = _names("""
brk mmap munmap mremap mprotect madvise msync mlock munlock mlockall munlockall futex futex_waitv
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack
pause alarm setitimer getitimer timer_create timer_settime timer_gettime timer_getoverrun
timer_delete nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
set_robust_list set_tid_address rseq membarrier sched_yield restart_syscall exit
exit_group wait4 waitid getpid gettid getppid getuid geteuid getgid getegid getresuid getresgid
getgroups getpgid getpgrp getsid getrlimit setrlimit getrusage getpriority getrandom getcpu uname
sysinfo arch_prctl capget sched_getaffinity sched_getparam sched_getscheduler
sched_get_priority_max sched_get_priority_min
""")
# Attributes of files that Landlock does not know: harmless where all files of the user are its own.
_ATTRIBUTES = _names("chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat")
# Refused by name, so that the error is "Operation not permitted"; what stands nowhere does not
# exist for the process.
_REFUSED = _names("""
socket connect bind listen accept accept4 sendmmsg recvmmsg ptrace process_vm_readv
process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd pidfd_send_signal
rt_sigqueueinfo rt_tgsigqueueinfo tkill mount umount2 move_mount open_tree fsopen fsconfig fsmount
fspick mount_setattr pivot_root chroot unshare setns io_uring_setup io_uring_enter
io_uring_register bpf perf_event_open userfaultfd memfd_secret keyctl add_key request_key
name_to_handle_at open_by_handle_at shmget shmat shmctl semget semop semctl semtimedop msgget
msgsnd msgrcv msgctl mq_open mq_unlink init_module finit_module delete_module kexec_load
kexec_file_load reboot swapon swapoff acct quotactl syslog iopl ioperm modify_ldt personality
sethostname setdomainname settimeofday clock_settime adjtimex clock_adjtime setuid setgid setreuid
setregid setresuid setresgid setfsuid setfsgid setgroups capset chown fchown lchown fchownat
fanotify_init fanotify_mark sync
syncfs vhangup vmsplice lookup_dcookie ioprio_set move_pages migrate_pages mbind set_mempolicy
mincore cachestat sched_setattr
""")
# Extended attributes, as on a file system that has none.
_ABSENT = _names("""
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
removexattr lremovexattr fremovexattr
""")
_WORKER = _names("""
setsid setpgid execve execveat memfd_create splice tee inotify_init inotify_init1 inotify_add_watch
inotify_rm_watch sendmsg recvmsg landlock_create_ruleset landlock_add_rule landlock_restrict_self
pidfd_open mlock2
""")

_OPENS_TO_TRUNCATE = os.O_TRUNC | os.O_ACCMODE
_CREATES_THREAD = 0x00010000  # of clone
# New namespaces, in which a process has rights that it lacks outside, and CLONE_PARENT.
_REFUSED_CLONE = 0x7E020000 | 0x8000
_SOCKET_KIND, _STREAM, _SEQUENCED_PACKETS = 0xF, 1, 5
# Of fcntl: signals to another process or of another kind, and leases.
_REFUSED_FCNTL = (8, 10, 15, 1024, 1026)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
_ALLOWED_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 36, 37, 38, 1025, 1030, 1031, 1032, 1033, 1034)
# TCGETS, TCGETS2, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX
_ALLOWED_IOCTL = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5451, 0x5450)
_PRCTL = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
_SET_SECCOMP = 22
# Set and get PDEATHSIG, get and set DUMPABLE, set SECCOMP and SUBREAPER, set and get NO_NEW_PRIVS
_PRCTL_OF_WORKERS = (1, 2, 3, 4, _SET_SECCOMP, 36, 38, 39)
_UNIX = 1


# Stands for the id of the process that installs a filter.
OWN_PID, OWN_GROUP = 0x7FFF_FFF1, 0x7FFF_FFF3


def with_pid(program: bytes, pid: int) -> bytes:
    """A filter for the process with this id."""
    for placeholder, value in ((OWN_PID, pid), (OWN_GROUP, -pid & 0xFFFFFFFF)):
        program = program.replace(
            placeholder.to_bytes(4, sys.byteorder), value.to_bytes(4, sys.byteorder)
        )
    return program


@dataclass(frozen=True)
class FilterOptions:
    """What differs between the filters of processes."""

    may_fork: bool
    may_start_threads: bool
    may_execute: bool
    # Landlock or a user of its own keeps signals inside, or all files of its user are its own.
    has_signal_scope: bool
    has_own_user: bool
    restricts_truncation: bool  # Landlock does
    may_restrict: bool = False  # may install Landlock rules of its own


def snippet_rules(options: FilterOptions) -> tuple[Rule, ...]:
    """The rules for code that a policy wrote."""
    rules = [*_conditional(options), *_allowed([*_FILES, *_PROCESS])]
    if options.may_execute:
        rules += _allowed(["execve", "execveat"])
    if options.may_restrict:
        rules += _allowed(
            ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
        )
    rules += [
        Rule("socketpair", (Condition(0, (_UNIX,)), Condition(1, (_STREAM,), _SOCKET_KIND))),
        Rule(
            "prctl", (Condition(0, (*_PRCTL, *((_SET_SECCOMP,) if options.may_restrict else ()))),)
        ),
        *_refused([*_REFUSED, "setsid", "setpgid", "sendmsg", "recvmsg"]),
    ]
    return tuple(rules)


def worker_rules(options: FilterOptions) -> tuple[Rule, ...]:
    """The rules for worker processes: they start programs and sandboxes, and have no network."""
    kinds = (_STREAM, _SEQUENCED_PACKETS)
    prctl = (*_PRCTL, *_PRCTL_OF_WORKERS)
    return (
        *_conditional(options),
        *_allowed([*_FILES, *_PROCESS, *_WORKER]),
        Rule("setpriority", (Condition(0, (0,)), Condition(1, (0, OWN_PID)))),
        *(
            Rule(name, (Condition(0, (0, OWN_PID)),))
            for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam")
        ),
        Rule("socketpair", (Condition(0, (_UNIX,)), Condition(1, kinds, _SOCKET_KIND))),
        Rule("prctl", (Condition(0, prctl),)),
        *_refused(_REFUSED),
    )


def _conditional(options: FilterOptions) -> list[Rule]:
    rules = [
        *_clone(options),
        Rule("kill")
        if options.has_signal_scope
        else Rule("kill", (Condition(0, (0, OWN_PID, OWN_GROUP)),)),
        Rule("tgkill") if options.has_signal_scope else Rule("tgkill", (Condition(0, (OWN_PID,)),)),
        Rule("prlimit64", (Condition(0, (0,)),)),
        Rule("fcntl", (Condition(1, _ALLOWED_FCNTL),)),
        Rule("ioctl", (Condition(1, _ALLOWED_IOCTL),)),
        Rule("sendto", (Condition(4, (0,), is_pointer=True),)),  # on a connected socket
        *(Rule(name, is_allowed=False, error=errno.EOPNOTSUPP) for name in _ABSENT),
    ]
    if options.has_own_user:
        rules += _allowed(_ATTRIBUTES)
    else:
        rules += _refused(_ATTRIBUTES)
    if options.restricts_truncation:
        return [*rules, Rule("truncate")]
    # Opening for reading with O_TRUNC would empty any file that may be read.
    modes = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_TRUNC)
    return [
        Rule("truncate", is_allowed=False),
        Rule("open", (Condition(1, modes, _OPENS_TO_TRUNCATE),)),
        Rule("openat", (Condition(2, modes, _OPENS_TO_TRUNCATE),)),
        *rules,
    ]


def _clone(options: FilterOptions) -> list[Rule]:
    """Processes and threads; clone3 is left out, since a filter cannot read its flags."""
    if options.may_fork:
        return [*_allowed(["fork", "vfork"]), Rule("clone", (Condition(0, (0,), _REFUSED_CLONE),))]
    if not options.may_start_threads:
        return _refused(["fork", "vfork", "clone"])
    mask = _CREATES_THREAD | _REFUSED_CLONE
    return [
        *_refused(["fork", "vfork"]),
        Rule("clone", (Condition(0, (_CREATES_THREAD,), mask),)),
    ]


def _allowed(names: Iterable[str]) -> list[Rule]:
    return [Rule(name) for name in names]


def _refused(names: Iterable[str]) -> list[Rule]:
    return [Rule(name, is_allowed=False) for name in names]
