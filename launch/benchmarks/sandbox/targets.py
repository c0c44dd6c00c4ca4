"""`Targets`: what a host has that attacks go for, and whether it is still as it was."""

import contextlib
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.syscall_numbers import architecture_of
from agentrl_jax.sandbox.zygote_session import ZygoteSession

MARKER_BYTES = 5  # a process's name has at most 15 bytes


class Targets:
    """Files, sockets, a process and a secret of the host; a context manager.

    They are as open as they can be: anybody may write the file and its folder, so that the sandbox
    alone protects them.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.secret = secrets.token_hex(16)
        self.secret_hash = hashlib.sha256(self.secret.encode()).hexdigest()
        self.marker = f"sbx{secrets.token_hex(MARKER_BYTES)}"
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        os.chmod(self.folder, 0o777)
        self.file = self.folder / "file"
        self._restore()
        self._victim = self._start_victim()
        self._terminal = os.openpty()
        with contextlib.suppress(OSError):
            os.chmod(os.ttyname(self._terminal[1]), 0o666)
        tcp = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._udp = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._udp.bind(("127.0.0.1", 0))
        abstract = f"\0{self.marker}"
        for name in (str(self.folder / "socket"), abstract):
            listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(name)
            listener.listen()
        os.chmod(self.folder / "socket", 0o777)
        datagrams = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        datagrams.bind(f"{abstract}-datagrams")
        self._values: dict[str, Any] = {
            "file": str(self.file),
            "folder": str(self.folder),
            "terminal": os.ttyname(self._terminal[1]),
            "host": os.getpid(),
            "marker": self.marker,
            "numbers": architecture_of(os.uname().machine).numbers,
            "secret_hash": self.secret_hash,
            "tcp": tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1],
            "unix": str(self.folder / "socket"),
            "abstract": abstract,
            "unix_datagrams": f"{abstract}-datagrams",
        }

    def __enter__(self) -> "Targets":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_victim()
        for descriptor in self._terminal:
            os.close(descriptor)
        self._stack.close()

    def values(self, sandbox: Sandbox, memory_mb: int, disk_mb: int) -> dict[str, Any]:
        """What an attack is given; a session of the sandbox is its neighbor."""
        neighbor = self._stack.enter_context(sandbox.session())
        neighbor.run("secret = 1")
        pid = neighbor.pid if isinstance(neighbor, ZygoteSession) else None
        return {
            **self._values,
            "victim": self._victim.pid,
            "neighbor": pid or self._victim.pid,
            "memory_mb": memory_mb,
            "disk_mb": disk_mb,
        }

    def damage(self) -> list[str]:
        """What has been done to the host since the last call; it is repaired."""
        damage = []
        status = self.file.stat() if self.file.exists() else None
        if status is None or status.st_mode & 0o777 != 0o666 or status.st_size != 4:
            damage.append("the file was changed")
        if {path.name for path in self.folder.iterdir()} - {"file", "socket"}:
            damage.append("files were made outside the folder")
        if self._victim.poll() is not None:
            damage.append("a process of the host was ended")
            self._end_victim()
            self._victim = self._start_victim()
        if (shared := Path("/dev/shm", self.marker)).exists():
            damage.append("shared memory was left behind")
            shared.unlink()
        for pid in self._marked_processes():
            damage.append("a process was left behind")
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        self._restore()
        return sorted(set(damage))

    def _restore(self) -> None:
        for path in self.folder.iterdir():
            if path.name == "socket":
                continue
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        self.file.write_text("text")
        os.chmod(self.file, 0o666)

    def _start_victim(self) -> "subprocess.Popen[bytes]":
        code = "import sys; sys.stdin.read()"  # until this process ends
        environment = {**os.environ, "SECRET": f"{self.secret}{self.marker}"}
        command = [sys.executable, "-S", "-c", code, self.marker]
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)

    def _end_victim(self) -> None:
        assert self._victim.stdin is not None
        self._victim.stdin.close()
        self._victim.kill()
        self._victim.wait()

    def _marked_processes(self) -> list[int]:
        """The processes with the marker as their name, zombies too."""
        marked = []
        for path in Path("/proc").glob("[0-9]*/comm"):
            with contextlib.suppress(OSError):
                if path.read_text().strip() == self.marker[:15]:
                    marked.append(int(path.parent.name))
        return marked
