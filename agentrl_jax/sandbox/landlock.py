"""Landlock: which files a process may use, by the folders that they are in."""

import os
import stat
import struct
from collections.abc import Iterable
from typing import NamedTuple

from agentrl_jax.sandbox import kernel

# Rights on files and folders, LANDLOCK_ACCESS_FS_*.
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
LIST = 1 << 3
REMOVE_FOLDER, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHARACTER_DEVICE, MAKE_FOLDER, MAKE_FILE, MAKE_SOCKET = 1 << 6, 1 << 7, 1 << 8, 1 << 9
MAKE_FIFO, MAKE_BLOCK_DEVICE, MAKE_SYMLINK = 1 << 10, 1 << 11, 1 << 12
REFER = 1 << 13  # links and renames between folders; from version 2 on, refused before
TRUNCATE = 1 << 14  # from version 3 on, allowed before
DEVICE_IOCTL = 1 << 15  # from version 5 on, allowed before

READ = READ_FILE | LIST
RUN = READ | EXECUTE
WRITE = (
    READ | WRITE_FILE | TRUNCATE | REFER | REMOVE_FOLDER | REMOVE_FILE | MAKE_FOLDER | MAKE_FILE
    | MAKE_FIFO | MAKE_SYMLINK
)  # fmt: skip

_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_IOCTL
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals


class FileRule(NamedTuple):
    """Rights on a file, or on a folder and all that is in it."""

    path: str
    rights: int


class OpenRule(NamedTuple):
    """A rule whose path is open, for processes that could not open it any more."""

    descriptor: int
    rights: int


def open_rules(rules: Iterable[FileRule]) -> tuple[OpenRule, ...]:
    """The rules of the paths that exist, open."""
    opened = []
    for rule in rules:
        try:
            descriptor = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rights = rule.rights if is_folder else rule.rights & _OF_FILES
        opened.append(OpenRule(descriptor, rights))
    return tuple(opened)


def restrict(rules: Iterable[OpenRule], abi: int) -> None:
    """Deny this thread all files but those of the rules, and, where the kernel can, TCP, abstract
    Unix sockets and signals to processes outside.

    Needs `kernel.SET_NO_NEW_PRIVILEGES`, and cannot be undone.

    Args:
        rules: what remains allowed.
        abi: the version of Landlock, at least 1.

    Raises:
        OSError: the kernel refuses.
    """
    rights = _RIGHTS[max(version for version in _RIGHTS if version <= abi)]
    words = [rights, *([_TCP] if abi >= 4 else []), *([_SCOPES] if abi >= 6 else [])]
    ruleset = kernel.landlock_create_ruleset(struct.pack(f"={len(words)}Q", *words))
    for rule in rules:
        attributes = struct.pack("=Qi", rule.rights & rights, rule.descriptor)
        kernel.landlock_add_path_rule(ruleset, attributes)
    kernel.landlock_restrict_self(ruleset)
    os.close(ruleset)
