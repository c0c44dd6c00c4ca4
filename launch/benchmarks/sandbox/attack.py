"""`Attack`: code that tries one way out of the sandbox, and what would let it through."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SUCCEEDED = "SUCCEEDED"  # what the code prints with the name of each attempt that succeeded
# Attempts that raise OSError, or return a negative number, are refused.
PRELUDE = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
target = {target}
numbers = target["numbers"]

def attempt(name, function, *arguments):
    try:
        result = function(*arguments)
    except (OSError, MemoryError, ValueError):
        return
    if not isinstance(result, int) or result >= 0:
        print({succeeded!r}, name, flush=True)

def syscall(name, *arguments):
    return libc.syscall(ctypes.c_long(numbers[name]), *arguments)

"""


@dataclass(frozen=True)
class Attack:
    """Code that prints `SUCCEEDED` where it got out.

    It runs after `PRELUDE`, with the dict `target`: what is there to be attacked (`Targets`).
    """

    name: str
    code: str
    # The protections that hold it (fields of `Protections`), or "clean parent": with all of these
    # switched off it succeeds.
    held_by: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)  # other than the battery's
    # Limits that hold it: with these instead it succeeds.
    loose_limits: Mapping[str, Any] = field(default_factory=dict)

    expected: Mapping[str, Any] = field(default_factory=dict)  # of the outcome where it is held

    def program(self, target: Mapping[str, Any]) -> str:
        prelude = PRELUDE.format(target=repr(dict(target)), succeeded=SUCCEEDED)
        return prelude + self.code
