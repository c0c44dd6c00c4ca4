"""`alone`: a folder is one command's at a time."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from agentrl_jax.errors import UserError


@contextlib.contextmanager
def alone(folder: Path, busy: str) -> Iterator[int]:
    """A lock of the folder, which is made where it is not there; processes that inherit the descriptor hold it too.

    Raises UserError where another holds it (`busy`: what that one is doing), or where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield file.fileno()
    except BlockingIOError as error:
        raise UserError(f"another command is {busy} in {folder}: wait until it ends, or name another folder") from error
    except OSError as error:
        raise UserError(f"the folder {folder} cannot be written ({error.strerror}): name another one") from error
