"""Linux calls that Python's `os` lacks, through ctypes; each raises OSError where it fails."""

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

# prctl
SET_PARENT_DEATH_SIGNAL = 1
SET_DUMPABLE = 4
SET_SECCOMP = 22
DROP_BOUNDING_CAPABILITY = 24
SET_CHILD_SUBREAPER = 36
SET_NO_NEW_PRIVILEGES = 38
FILTER_MODE = 2  # of seccomp

# unshare
NEW_MOUNTS = 0x00020000
NEW_USER = 0x10000000

# mount
READ_ONLY, NO_SETUID, NO_DEVICES = 0x1, 0x2, 0x4
BIND, RECURSIVE, PRIVATE = 0x1000, 0x4000, 0x40000

# Landlock's system calls have the same numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CAPABILITY_VERSION = 0x20080522


def _checked(result: int, name: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def prctl(option: int, value: int = 0, pointer: int = 0) -> None:
    arguments = map(ctypes.c_ulong, (value, pointer, 0, 0))
    _checked(_libc.prctl(ctypes.c_int(option), *arguments), "prctl")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount a file system of a kind, or with `BIND` a folder, at `target`."""
    texts = [text.encode() or None for text in (source, target, kind)]
    result = _libc.mount(*texts, ctypes.c_ulong(flags), options.encode() or None)
    _checked(result, f"mount {kind or source} at {target}")


def drop_capabilities() -> None:
    """Give up all capabilities of this thread, also those that a program could gain."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    capabilities = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; the rest: likewise
    _checked(_libc.capget(header, capabilities), "capget")
    if not any(capabilities):
        return
    for capability in range(64):
        try:
            prctl(DROP_BOUNDING_CAPABILITY, capability)
        except OSError:  # there is none of this number, or the right to drop it is missing
            break
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def install_filter(program: bytes) -> None:
    """Install a seccomp filter on this thread and all that it starts; needs
    `SET_NO_NEW_PRIVILEGES`.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _FilterProgram(len(program) // 8, ctypes.addressof(buffer))
    prctl(SET_SECCOMP, FILTER_MODE, ctypes.addressof(header))


class _FilterProgram(ctypes.Structure):
    """`struct sock_fprog`"""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def landlock_abi() -> int:
    """The version of Landlock that the kernel has; 0: none."""
    return max(0, _libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), 1))


def landlock_create_ruleset(attributes: bytes) -> int:
    """The descriptor of a new ruleset."""
    size = ctypes.c_size_t(len(attributes))
    return _checked(
        _libc.syscall(ctypes.c_long(_CREATE_RULESET), attributes, size, 0),
        "landlock_create_ruleset",
    )


def landlock_add_path_rule(ruleset: int, attributes: bytes) -> None:
    call = ctypes.c_long(_ADD_RULE)
    _checked(_libc.syscall(call, ruleset, 1, attributes, 0), "landlock_add_rule")


def landlock_restrict_self(ruleset: int) -> None:
    call = ctypes.c_long(_RESTRICT_SELF)
    _checked(_libc.syscall(call, ruleset, 0), "landlock_restrict_self")
