"""The package textworld: where its compiled games are, and a home folder for its compiler."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError


def import_textworld() -> Any:
    """The package. Raises UserError where it is not installed."""
    try:
        import_module("textworld.generator")
        import_module("textworld.challenges")
        return import_module("textworld")
    except ModuleNotFoundError as error:
        raise UserError(
            "this environment needs textworld: pip install 'agentrl_jax[textworld]'"
        ) from error


@cache
def games_folder() -> Path:
    """The folder of the compiled games, deleted when this process ends."""
    path = tempfile.mkdtemp(prefix="textworld-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


@contextmanager
def temporary_home(path: Path) -> Iterator[None]:
    """Set $HOME, which the compiler writes into, to `path`."""
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(path)
    try:
        yield
    finally:
        del os.environ["HOME"]
        if before is not None:
            os.environ["HOME"] = before
