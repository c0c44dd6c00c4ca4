"""A test of a sandbox when it is opened: what must be refused is tried once."""

import contextlib
import os
import socket
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.snippet import Snippet

_DONE = "done"
_PROGRAM = """
import os, socket

def refused(name, attempt):
    try:
        attempt()
    except OSError:
        return
    print(name)

def connect(family, address):
    with socket.socket(family) as client:
        client.connect(address)

refused("it can read a file of the host", lambda: open({folder!r} + "/file").close())
refused("it can list a folder of the host", lambda: os.listdir({folder!r}))
refused("it can write outside its folder", lambda: open({folder!r} + "/new", "w").close())
refused("it can connect to a port", lambda: connect(socket.AF_INET, ("127.0.0.1", {port})))
refused("it can connect to a socket", lambda: connect(socket.AF_UNIX, {name!r}))
refused("it can send signals to the host", lambda: os.kill({pid}, 0))
refused("it can start processes", lambda: os.fork() or os._exit(0))
print({done!r})
"""
_FIRST_PID = 100  # a smaller one may exist in a sandbox's own numbering too


def _listen(stack: ExitStack, name: str) -> int:
    """Open a port, which is returned, and a Unix socket, for the time of the stack."""
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(name)
    listener.listen()
    return stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]


def check_sandbox(sandbox: Sandbox, is_here: bool) -> None:
    """Run a program that tries to get out.

    Args:
        sandbox: to be tested.
        is_here: on this machine; else it is tested only whether it runs programs.

    Raises:
        EnvironmentFailure: the sandbox failed.
        UserError: something is not refused, or the program did not run.
    """
    limits = replace(sandbox.limits, subprocesses=False)
    if not is_here:
        outcome = sandbox.run(Snippet(f"print({_DONE!r})"), limits)
    else:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            (Path(folder) / "file").write_text("text")
            name, port = f"\0agentrl-{os.path.basename(folder)}", 9
            # A sandboxed worker may do neither.
            with contextlib.suppress(PermissionError):
                os.chmod(folder, 0o755)
            with contextlib.suppress(PermissionError):
                port = _listen(stack, name)
            program = _PROGRAM.format(
                folder=folder,
                port=port,
                name=name,
                pid=os.getpid() if os.getpid() >= _FIRST_PID else 2**22 - 1,
                done=_DONE,
            )
            outcome = sandbox.run(Snippet(program), limits)
    lines = outcome.stdout.split("\n")
    if lines[:-1] != [_DONE]:
        holes = "; ".join(line for line in lines if line and line != _DONE)
        error = outcome.stderr.strip().rpartition("\n")[2]
        raise UserError(f"it does not hold ({(holes or error or 'no output')[:500]})")
