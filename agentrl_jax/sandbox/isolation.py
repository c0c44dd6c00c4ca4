"""`Isolation`: a user and a folder of its own for a process, as far as this host can give them."""

import contextlib
import functools
import os
import select
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.sandbox import kernel

MAX_FILES = 2048  # in the folder of a process, folders and links included
_FIRST_USER = 2_000_000_000  # no system hands out ids from here on; plus a process id below 2**22
_PROBE_SECONDS = 10


@dataclass(frozen=True)
class Isolation:
    """What keeps a process apart, beside Landlock and seccomp.

    Where it has a user or a user namespace of its own, the kernel counts its processes apart.
    """

    own_user: bool = False  # a user id that no other process has
    user_namespace: bool = False  # in which it is alone
    private_folder: bool = False  # a file system in memory, bounded, that only it sees

    @property
    def counts_tasks(self) -> bool:
        return self.own_user or self.user_namespace

    def enter(self, folder: str, disk_bytes: int) -> None:
        """Make this process so, in `folder`, without capabilities.

        Without a private folder `folder` itself becomes its own.

        Raises:
            OSError: the host cannot.
        """
        user, group = os.getuid(), os.getgid()
        mounts_as_root = self.private_folder and not self.user_namespace
        if self.own_user:
            user = group = own_user_id()
        if mounts_as_root:
            kernel.unshare(kernel.NEW_MOUNTS)
            _mount_folder(folder, disk_bytes, user, group)
        elif self.own_user:
            os.chown(folder, user, group)
        if self.own_user:
            os.setgroups([])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
        if self.user_namespace:
            _enter_user_namespace(user, group, self.private_folder)
            if self.private_folder:
                _mount_folder(folder, disk_bytes, user, group)
        os.chdir(folder)
        kernel.drop_capabilities()


def own_user_id() -> int:
    """A user id that no other process here has: it follows from this process's id."""
    pid, last = os.getpid(), _last_user_id()
    if last >= _FIRST_USER + 2**22:
        return _FIRST_USER + pid
    return 30_000 + pid % 30_000  # in a container with fewer: shared with one in 30,000


@functools.cache
def _last_user_id() -> int:
    """The largest user id of this process's namespace."""
    ends = []
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/self/{name}", encoding="ascii") as file:
            rows = [list(map(int, line.split())) for line in file]
        ends.append(max((first + length - 1 for first, _, length in rows), default=0))
    return min(ends)


def _enter_user_namespace(user: int, group: int, mounts: bool) -> None:
    kernel.prctl(kernel.SET_DUMPABLE, 1)  # or the files below would be root's
    kernel.unshare(kernel.NEW_USER | (kernel.NEW_MOUNTS if mounts else 0))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _mount_folder(folder: str, disk_bytes: int, user: int, group: int) -> None:
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    options = f"size={disk_bytes},nr_inodes={MAX_FILES},mode=700,uid={user},gid={group}"
    kernel.mount("tmpfs", folder, "tmpfs", kernel.NO_SETUID | kernel.NO_DEVICES, options)


_AS_ROOT = (
    Isolation(own_user=True, private_folder=True),
    Isolation(own_user=True, user_namespace=True, private_folder=True),
    Isolation(own_user=True),
)
_AS_USER = (
    Isolation(user_namespace=True, private_folder=True),
    Isolation(user_namespace=True),
    Isolation(),
)


def best_isolation(folder: str) -> Isolation:
    """The strongest isolation that this process can give its children.

    Args:
        folder: an empty folder, on which they may mount.

    Raises:
        OSError: it cannot even end them.
    """
    with contextlib.suppress(OSError):
        _last_user_id()  # read once, here
    return first_isolation((*(_AS_ROOT if os.geteuid() == 0 else ()), *_AS_USER), folder)


def first_isolation(isolations: Sequence[Isolation], folder: str) -> Isolation:
    """The first isolation that a child of this process can enter, found out by trying.

    Raises:
        OSError: there is none.
    """
    for isolation in isolations:
        if _try(lambda: isolation.enter(folder, 2**20)):  # noqa: B023  called at once
            return isolation
    raise OSError("this process cannot confine and end its children")


def _try(enter: Callable[[], None]) -> bool:
    """Whether a child can enter an isolation, write to its folder and be killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            enter()
            with open("probe", "wb") as file:
                file.write(b"x")
            os.unlink("probe")
            os.write(writer, b"x")
            signal.pause()  # until it is killed
        finally:
            os._exit(1)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], _PROBE_SECONDS)
        has_entered = bool(ready) and os.read(reader, 1) == b"x"
        os.kill(pid, signal.SIGKILL)
    except PermissionError:  # it could not be killed: it must not be used, and ends by itself
        return False
    finally:
        os.close(reader)
    os.waitpid(pid, 0)
    return has_entered
