"""Seccomp filters, run by a simulation of the kernel's virtual machine, for both architectures."""

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.seccomp_filter import (
    ALLOW,
    EPERM,
    ERRNO,
    KILL_PROCESS,
    Condition,
    Rule,
    compile_filter,
)
from agentrl_jax.sandbox.seccomp_policy import (
    FilterOptions,
    snippet_rules,
    with_pid,
    worker_rules,
)
from agentrl_jax.sandbox.syscall_numbers import AARCH64, X86_64, Architecture, architecture_of

ARCHITECTURES = (X86_64, AARCH64)
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
BOXED = FilterOptions(
    may_fork=False,
    may_start_threads=True,
    may_execute=False,
    has_signal_scope=True,
    has_own_user=True,
    restricts_truncation=True,
)
BARE = FilterOptions(False, False, False, False, False, False)


def simulate(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What a filter returns for a system call, by the rules of Linux's socket_filter.rst."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, audit, 0, *(word % 2**64 for word in words))
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, k = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x54:
                accumulator &= k
            case 0x05:
                at += k
            case 0x15:
                at += if_true if accumulator == k else if_false
            case 0x35:
                at += if_true if accumulator >= k else if_false
            case 0x06:
                return k


def call(rules: tuple[Rule, ...], architecture: Architecture, name: str, *arguments: int) -> int:
    program = compile_filter(rules, architecture)
    return simulate(program, architecture.audit, architecture.numbers[name], *arguments)


def refusal(number: int) -> int:
    return ERRNO | number


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_numbers_are_those_of_the_kernels_headers(architecture: Architecture):
    if not HEADERS[architecture.name].exists():
        pytest.skip("the kernel's headers are not installed")
    text = HEADERS[architecture.name].read_text()
    pattern = r"#define __NR(?:3264)?_(\w+)\s+(\d+)$"
    numbers = {name: int(number) for name, number in re.findall(pattern, text, re.MULTILINE)}
    numbers["newfstatat"] = numbers.get("newfstatat", numbers.get("fstatat", -1))
    ours = architecture.numbers
    known = {name: number for name, number in ours.items() if name in numbers}
    assert len(known) > 250 and {name: numbers[name] for name in known} == known
    assert len(set(ours.values())) == len(ours)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_each_number_gets_what_its_first_rule_says(architecture: Architecture):
    rules = (
        Rule("read"),
        Rule("kill", (Condition(0, (5, 7)), Condition(1, (0,), mask=0xF0))),
        Rule("sendto", (Condition(4, (0,), is_pointer=True),)),
        Rule("mount", is_allowed=False),
        Rule("getxattr", is_allowed=False, error=errno.EOPNOTSUPP),
        Rule("mount"),
    )
    program = compile_filter(rules, architecture)
    for number in range(600):
        names = [name for name, n in architecture.numbers.items() if n == number]
        result = simulate(program, architecture.audit, number, 5, 0x0F)
        expected = {
            "read": ALLOW,
            "kill": ALLOW,
            "sendto": ALLOW,
            "mount": refusal(EPERM),
            "getxattr": refusal(errno.EOPNOTSUPP),
        }.get(names[0] if names else "", refusal(errno.ENOSYS))
        assert result == expected, (number, names)
    for arguments, expected in (
        ((6, 0), refusal(EPERM)),
        ((7, 0x10), refusal(EPERM)),
        ((7 + 2**32, 0), ALLOW),  # the kernel takes the lower half of an integer
    ):
        assert call(rules, architecture, "kill", *arguments) == expected
    assert call(rules, architecture, "sendto", 0, 0, 0, 0, 2**32) == refusal(EPERM)


def test_calls_of_another_architecture_kill():
    program = compile_filter((Rule("read"),), X86_64)
    assert simulate(program, X86_64.audit, 0) == ALLOW
    assert simulate(program, 0x40000003, 3) == KILL_PROCESS  # of 32 bits
    assert simulate(program, X86_64.audit, 0x40000000) == KILL_PROCESS  # x32
    assert simulate(program, AARCH64.audit, 63) == KILL_PROCESS
    with pytest.raises(UserError, match="riscv64"):
        architecture_of("riscv64")


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
@pytest.mark.parametrize("options", [BOXED, BARE])
def test_a_snippet_may_compute_and_little_else(options: FilterOptions, architecture: Architecture):
    rules = snippet_rules(options)
    for name in ("read", "write", "mmap", "futex", "exit_group", "openat", "getrandom"):
        arguments = (0, 0, os.O_RDWR) if name == "openat" else ()
        assert call(rules, architecture, name, *arguments) == ALLOW, name
    for name in (
        "socket", "connect", "bind", "ptrace", "process_vm_readv", "mount", "unshare", "setns",
        "io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "keyctl", "setresuid", "fchown",
        "shmget", "open_by_handle_at", "setsid", "setpgid", "sendmsg", "init_module", "reboot",
    ):  # fmt: skip
        assert call(rules, architecture, name) == refusal(EPERM), name
    for name in ("execve", "memfd_create", "clone3", "landlock_restrict_self", "pidfd_open"):
        assert call(rules, architecture, name) == refusal(errno.ENOSYS), name
    assert call(rules, architecture, "socketpair", 1, 1 | 0o2000000) == ALLOW
    assert call(rules, architecture, "socketpair", 1, 2) == refusal(EPERM)  # datagrams
    assert call(rules, architecture, "ioctl", 0, 0x5412) == refusal(EPERM)  # TIOCSTI
    assert call(rules, architecture, "fcntl", 0, 8) == refusal(EPERM)  # F_SETOWN
    assert call(rules, architecture, "prctl", 4) == refusal(EPERM)
    assert call(rules, architecture, "prlimit64", 7) == refusal(EPERM)
    sigchld, thread, user = 17, 0x10000, 0x10000000
    assert call(rules, architecture, "clone", sigchld) == refusal(EPERM)
    assert call(rules, architecture, "clone", thread | user) == refusal(EPERM)
    threads = ALLOW if options.may_start_threads else refusal(EPERM)
    assert call(rules, architecture, "clone", thread) == threads


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_where_the_kernel_keeps_less_the_filter_keeps_more(architecture: Architecture):
    program = with_pid(compile_filter(snippet_rules(BARE), architecture), 1234)

    def result(name: str, *arguments: int) -> int:
        return simulate(program, architecture.audit, architecture.numbers[name], *arguments)

    assert [result("kill", pid) for pid in (1234, 0, -1234)] == [ALLOW] * 3
    assert [result("kill", pid) for pid in (1, 1233, -1, -1233)] == [refusal(EPERM)] * 4
    assert result("tgkill", 1234) == ALLOW and result("tgkill", 99) == refusal(EPERM)
    assert result("truncate") == result("fchmod") == refusal(EPERM)
    flags = {os.O_RDONLY: ALLOW, os.O_RDONLY | os.O_TRUNC: refusal(EPERM)}
    flags |= {os.O_WRONLY | os.O_TRUNC | os.O_CREAT: ALLOW, os.O_RDWR | os.O_TRUNC: ALLOW}
    assert {x: result("openat", 0, 0, x) for x in flags} == flags
    boxed = snippet_rules(BOXED)
    assert call(boxed, architecture, "kill", 1) == ALLOW  # Landlock or the user id refuses it
    assert call(boxed, architecture, "fchmod") == ALLOW


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_a_worker_starts_programs_and_has_no_network(architecture: Architecture):
    options = FilterOptions(True, True, True, True, False, True)
    rules = worker_rules(options)
    for name, arguments in (
        ("execve", ()), ("clone", (17,)), ("setsid", ()), ("sendmsg", ()), ("memfd_create", ()),
        ("landlock_restrict_self", ()), ("socketpair", (1, 5)), ("prctl", (22,)),
    ):  # fmt: skip
        assert call(rules, architecture, name, *arguments) == ALLOW, name
    for name, arguments in (
        ("socket", ()), ("ptrace", ()), ("unshare", ()), ("clone", (0x10000000,)), ("fchmod", ()),
        ("setpriority", (0, 77)), ("sched_setaffinity", (77,)),
    ):  # fmt: skip
        assert call(rules, architecture, name, *arguments) == refusal(EPERM), name
