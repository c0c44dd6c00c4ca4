"""An exclusive lock on a folder, for one command on all machines that share the folder.

The file `.lock` holds who has the lock, and a thread renews its time of change. The owner counts as
dead when its `flock` is gone, or where the file system has none when its process is; and when it
runs on another machine, whose `flock` may be invisible here, after `STALE_SECONDS` without a sign
of life.
"""

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError

LOCK_FILE = ".lock"
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class LockOwner:
    """The process that has a lock, as the lock file says."""

    activity: str  # what it is doing: "training"
    host: str
    boot: str  # the boot of its machine; empty where the system does not tell
    pid: int
    process_start: str  # tells two processes with the same id apart; empty likewise
    time: float  # when it got the lock, in seconds since 1970
    token: str  # unique

    def is_local(self) -> bool:
        """Whether it ran on this machine, in this container, since its last boot."""
        return (self.host, self.boot) == (socket.gethostname(), _boot_id())

    def is_alive(self) -> bool:
        """Whether a local process still runs."""
        with contextlib.suppress(PermissionError):
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return False
        return _process_start(self.pid) == self.process_start

    def __str__(self) -> str:
        age = datetime.timedelta(seconds=max(0, int(time.time() - self.time)))
        return f"process {self.pid} on {self.host}, for {age}"


class FolderLock:
    """A lock that this process has, until it is released or taken over."""

    def __init__(self, path: Path, descriptor: int, owner: LockOwner) -> None:
        self.descriptor = descriptor  # children that inherit it keep the lock
        self._path, self._owner = path, owner
        self._successor: LockOwner | None = None
        self._released = threading.Event()
        path.write_text(json.dumps(dataclasses.asdict(owner)) + "\n", encoding="utf-8")
        self._thread = threading.Thread(target=self._renew, name="folder lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises UserError where another process took the lock over, as after a long pause."""
        if self._successor:
            raise UserError(
                f"this command was without a sign of life for {STALE_SECONDS:g} s, and "
                f"{self._successor} took over {self._path.parent}: leave the folder to it"
            )

    def _renew(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS) and not self._successor:
            with contextlib.suppress(OSError):
                owner, _ = _read_lock(self._path)
                if owner is not None and owner.token != self._owner.token:
                    self._successor = owner
                else:
                    os.utime(self._path)

    def release(self) -> None:
        """Let others have the lock."""
        self._released.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            owner, _ = _read_lock(self._path)
            if owner is not None and owner.token == self._owner.token:
                os.truncate(self._path, 0)
        os.close(self.descriptor)


@contextlib.contextmanager
def exclusive_lock(folder: Path, activity: str) -> Iterator[FolderLock]:
    """Locks the folder, creating it if needed.

    Args:
        folder: of this command alone.
        activity: what it is doing, for the message that others get.

    Raises:
        UserError: another process has the lock, or the folder is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _acquire(folder / LOCK_FILE, activity)
    except OSError as error:
        raise UserError(
            f"the folder {folder} cannot be written ({error.strerror}): "
            "name another one with --run_dir=... or --out=..."
        ) from error
    try:
        yield lock
    finally:
        lock.release()


def _acquire(path: Path, activity: str) -> FolderLock:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _wait_until_free(path, descriptor, activity)
        return FolderLock(path, descriptor, _this_process(activity))
    except BaseException:
        os.close(descriptor)
        raise


def _wait_until_free(path: Path, descriptor: int, activity: str) -> None:
    """Return once nobody has the lock; UserError where a living process has it.

    An owner on another machine is watched until its next sign of life, or until it is stale.
    """
    start, first_sign = time.monotonic(), None
    while True:
        has_flock = _try_flock(descriptor)
        owner, sign = _read_lock(path)
        if _is_free(owner, has_flock, path, sign):
            return
        if owner is None or owner.is_local() or (first_sign is not None and sign != first_sign):
            raise _refusal(path, owner, activity)
        if time.monotonic() - start > 2 * STALE_SECONDS:  # dead, but the server keeps its flock
            raise _refusal(path, owner, activity)
        if first_sign is None:
            print(f"{path.parent} is locked by {owner}: waiting for a sign of life of it",
                  file=sys.stderr, flush=True)  # fmt: skip
            first_sign = sign
        time.sleep(POLL_SECONDS)


def _is_free(owner: LockOwner | None, has_flock: bool | None, path: Path, sign: float) -> bool:
    if has_flock is False:
        return False
    if owner is None:
        return True
    if owner.is_local():
        return has_flock is True or not owner.is_alive()
    return _file_system_time(path.parent) - sign > STALE_SECONDS


def _refusal(path: Path, owner: LockOwner | None, activity: str) -> UserError:
    who = f" ({owner})" if owner else ""
    return UserError(
        f"another command is {owner.activity if owner else activity} in {path.parent}{who}: "
        "wait until it ends, or name another folder"
    )


def _try_flock(descriptor: int) -> bool | None:
    """Whether this process now has the file's `flock`; None where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EAGAIN, errno.EACCES) else None
    return True


def _read_lock(path: Path) -> tuple[LockOwner | None, float]:
    """The owner, None where there is none, and the time of its last sign of life.

    The file is opened anew, since a network file system may cache its content and times until then.
    """
    with open(path, "rb") as file:
        sign = os.fstat(file.fileno()).st_mtime
        try:
            return LockOwner(**json.loads(file.read())), sign
        except (ValueError, TypeError):
            return None, sign


def _file_system_time(folder: Path) -> float:
    """The time of the machine that stamps the folder's files, which may differ from ours."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=LOCK_FILE) as file:
        os.utime(file.name)
        return os.stat(file.name).st_mtime


def _this_process(activity: str) -> LockOwner:
    pid = os.getpid()
    return LockOwner(
        activity=activity,
        host=socket.gethostname(),
        boot=_boot_id(),
        pid=pid,
        process_start=_process_start(pid),
        time=time.time(),
        token=uuid.uuid4().hex,
    )


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _process_start(pid: int) -> str:
    """When a process started, in clock ticks since the boot; empty where nothing tells."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # "71 (name) S ...": start is the 22nd field
        return stat.rpartition(b")")[2].split()[19].decode()
    return ""
