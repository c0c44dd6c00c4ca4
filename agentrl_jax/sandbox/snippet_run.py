"""What a confined process does with its request: it prepares its folder and runs the code."""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from agentrl_jax.sandbox import cells

STARTED = b"started"  # what the host learns through a leash before any code runs
REQUESTS, REPLIES = 3, 4  # the descriptors of a session
_MAX_DESCRIPTORS = 65_536


def read_request(descriptor: int) -> dict[str, Any]:
    with open(descriptor, "rb") as file:
        return json.loads(file.read())


def prepare(folder: str, fields: dict[str, Any]) -> None:
    """What differs between snippets, within the process and its folder."""
    os.environ.update(HOME=folder, TMPDIR=folder, PWD=folder)
    if "tempfile" in sys.modules:
        vars(sys.modules["tempfile"])["tempdir"] = None  # it asks the environment again
    sys.path.insert(0, "")
    sys.executable = sys._base_executable  # type: ignore[attr-defined]  not that of a venv
    cells.seed_generators(fields["seed"])
    cells.write_files(fields["files"])


def run_snippet(
    fields: dict[str, Any],
    announce: Callable[[], Any],
    session: Sequence[int],
    open_files: int,
    closes_descriptors: bool = True,
) -> NoReturn:
    """Run what a request describes, in this process; ends it.

    Args:
        fields: of the request.
        announce: tells the host that it starts; no code has run before.
        session: the two pipes of a session; empty: a program.
        open_files: how many descriptors may be open; 0: any number.
        closes_descriptors: whether all others are closed first.
    """
    announce()
    for target, descriptor in zip((REQUESTS, REPLIES), session):
        os.dup2(descriptor, target)
    if closes_descriptors:
        os.closerange(3 + len(session), _MAX_DESCRIPTORS)
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if session:
        cells.run_session(REQUESTS, REPLIES)
    elif fields["command"]:
        _execute_command(fields["command"], fields["code"])
    else:
        cells.run_program(fields["code"])
    os._exit(0)


def _execute_command(command: Sequence[str], code: str) -> NoReturn:
    """Replace this process by a program that runs the code."""
    path = ".code"
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(code)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execve(command[0], [*command, path], dict(os.environ))
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)
