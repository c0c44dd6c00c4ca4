"""Seccomp filters: rules on system calls, and the BPF program that the kernel runs for them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl_jax.sandbox.syscall_numbers import Architecture

# Instructions of classic BPF.
LOAD = 0x20  # the accumulator becomes the word of `struct seccomp_data` at an offset
AND = 0x54
JUMP = 0x05
JUMP_IF_EQUAL = 0x15
JUMP_IF_AT_LEAST = 0x35
RETURN = 0x06

# What a filter returns.
ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
EPERM, ENOSYS = 1, 38

# Offsets in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_INSTRUCTION = struct.Struct("=HBBI")


@dataclass(frozen=True)
class Condition:
    """A condition on an argument: its lower 32 bits, masked, are one of `values`.

    `is_pointer` asks that the upper 32 bits are 0 too, which pointers need; of integers the kernel
    itself ignores them.
    """

    argument: int  # 0 to 5
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    is_pointer: bool = False


@dataclass(frozen=True)
class Rule:
    """A system call that is allowed where all conditions hold, and refused elsewhere."""

    name: str
    conditions: tuple[Condition, ...] = ()
    is_allowed: bool = True  # False: refused in any case
    error: int = EPERM  # that a refused call returns


def compile_filter(rules: Sequence[Rule], architecture: Architecture) -> bytes:
    """The BPF program of the rules: a binary search for the number of the call.

    The kernel runs it for each number when it is installed, so its depth counts. A call that no
    rule names is refused with ENOSYS, so that libraries use another one, and a call of another
    architecture kills the process. The first rule of a call decides. Calls that the architecture
    lacks are left out.
    """
    blocks: dict[int, tuple[bytes, ...]] = {}
    for rule in rules:
        number = architecture.numbers.get(rule.name)
        if number is not None:
            blocks.setdefault(number, _block(rule))
    absent: tuple[bytes, ...] = (_statement(RETURN, ERRNO | ENOSYS),)
    intervals: list[tuple[int, tuple[bytes, ...]]] = [(0, absent)]
    # the first number of each, and what is done with its calls
    for number in sorted(blocks):
        for first, block in ((number, blocks[number]), (number + 1, absent)):
            if intervals[-1][0] == first:
                intervals.pop()
            if not intervals or intervals[-1][1] != block:
                intervals.append((first, block))
    program = [
        _statement(LOAD, _ARCHITECTURE),
        _jump(JUMP_IF_EQUAL, architecture.audit, 1, 0),
        _statement(RETURN, KILL_PROCESS),
        _statement(LOAD, _NUMBER),
    ]
    if architecture.foreign_numbers:
        program += [
            _jump(JUMP_IF_AT_LEAST, architecture.foreign_numbers, 0, 1),
            _statement(RETURN, KILL_PROCESS),
        ]
    return b"".join([*program, *_search(intervals)])


def _search(intervals: Sequence[tuple[int, tuple[bytes, ...]]]) -> list[bytes]:
    """Instructions that find the interval of the number and run its block."""
    if len(intervals) == 1:
        return list(intervals[0][1])
    middle = len(intervals) // 2
    below, above = _search(intervals[:middle]), _search(intervals[middle:])
    first = intervals[middle][0]
    if len(below) <= 255:
        return [_jump(JUMP_IF_AT_LEAST, first, len(below), 0), *below, *above]
    long_jump = _statement(JUMP, len(below))
    return [_jump(JUMP_IF_AT_LEAST, first, 0, 1), long_jump, *below, *above]


def _block(rule: Rule) -> tuple[bytes, ...]:
    """What follows where the number is that of the rule; every path through it returns."""
    refusal = _statement(RETURN, ERRNO | rule.error)
    if not rule.is_allowed:
        return (refusal,)
    block: list[bytes] = []
    for condition in rule.conditions:
        low = _ARGUMENTS + 8 * condition.argument  # little-endian
        block.append(_statement(LOAD, low))
        if condition.mask != 0xFFFFFFFF:
            block.append(_statement(AND, condition.mask))
        for i, value in enumerate(condition.values):
            # Equal: to after the refusal that follows the last value.
            block.append(_jump(JUMP_IF_EQUAL, value, len(condition.values) - i, 0))
        block.append(refusal)
        if condition.is_pointer:
            block.append(_statement(LOAD, low + 4))
            block.append(_jump(JUMP_IF_EQUAL, 0, 1, 0))
            block.append(refusal)
    return (*block, _statement(RETURN, ALLOW))


def _statement(code: int, k: int) -> bytes:
    return _INSTRUCTION.pack(code, 0, 0, k)


def _jump(code: int, k: int, if_true: int, if_false: int) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, k)
