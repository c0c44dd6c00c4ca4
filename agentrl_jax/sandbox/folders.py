"""The folders of snippets: their size, their removal, and paths that another user may reach."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.sandbox import kernel
from agentrl_jax.sandbox.isolation import MAX_FILES

_MAX_DEPTH = 64


def exceeds(folder: str, max_bytes: int) -> bool:
    """Whether a folder that a snippet fills holds more bytes or files than it may, or is nested too
    deeply to tell.
    """
    size, count, waiting = 0, 0, [(folder, 0)]
    while waiting:
        path, depth = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if size > max_bytes or count > MAX_FILES or depth > _MAX_DEPTH:
                        return True
        except OSError:  # it is gone, or the snippet made it unreadable: what it held counts not
            continue
    return False


def remove(folder: str) -> None:
    """Remove a folder, whatever a snippet made of it.

    By `rm`, which follows no links and knows no limit of depth.
    """
    script = 'chmod -R u+rwx -- "$0"; rm -rf -- "$0"'
    subprocess.run(
        ["/bin/sh", "-c", script, folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath},
        check=False,
    )


def expose(paths: Sequence[str]) -> None:
    """Let other users reach paths in folders that only this one may enter, as Python's in a home.

    Where this process may mount, each such folder is replaced, in this process's view alone, by an
    empty one that holds just these paths; elsewhere nothing happens.
    """
    closed: dict[str, list[str]] = {}
    for path in {os.path.realpath(path) for path in paths}:
        folder = _closed_ancestor(path)
        if folder is not None and os.path.exists(path):
            closed.setdefault(folder, []).append(path)
    if not closed or os.geteuid() != 0:
        return
    try:
        kernel.unshare(kernel.NEW_MOUNTS)
        kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
        for folder, inner in closed.items():
            _replace(folder, inner)
    except PermissionError:  # without the right to mount, as in most containers
        return


def make_reachable_folder(prefix: str) -> str:
    """A new temporary folder, in one that other users may enter where there is such a one."""
    parent = tempfile.gettempdir()
    if os.geteuid() == 0 and _closed_ancestor(f"{os.path.realpath(parent)}/file") is not None:
        with contextlib.suppress(PermissionError):  # a sandboxed worker has only its own
            return tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    return tempfile.mkdtemp(prefix=prefix)


def _closed_ancestor(path: str) -> str | None:
    """The topmost folder on the way to a path that others may not enter."""
    parts = path.split("/")
    for end in range(2, len(parts)):
        folder = "/".join(parts[:end])
        if os.path.isdir(folder) and not os.stat(folder).st_mode & 0o001:
            return folder
    return None


def _replace(folder: str, inner: Sequence[str]) -> None:
    """Mount an empty folder on `folder`, with the paths `inner` in it as before."""
    opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in inner}
    flags = kernel.NO_SETUID | kernel.NO_DEVICES
    kernel.mount("tmpfs", folder, "tmpfs", flags, "size=64k,mode=755")
    for path, descriptor in sorted(opened.items()):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            os.makedirs(path, mode=0o755, exist_ok=True)
        elif not os.path.exists(path):
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            Path(path).touch()
        kernel.mount(f"/proc/self/fd/{descriptor}", path, flags=kernel.BIND)
        os.close(descriptor)
