"""The arguments of bubblewrap: the view of the system that a snippet gets."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.bubblewrap_child import FILTER, FOLDER
from agentrl_jax.sandbox.contained_run import PACKAGES, WORK
from agentrl_jax.sandbox.landlock import LIST, FileRule

# What `contained_run` imports; without an __init__.py, which would import more.
_MODULES = ("errors.py", "sandbox")


def find_bubblewrap() -> str:
    """The path of `bwrap`. Raises UserError where it is not installed."""
    path = shutil.which("bwrap")
    if path is None:
        raise UserError("bubblewrap is not installed: install Debian's package bubblewrap")
    return path


def package_files() -> list[str]:
    """The files of this package that the view needs."""
    folder = Path(__file__).parents[1]
    return [str(folder / name) for name in _MODULES]


def launcher(program: str, rules: Sequence[FileRule]) -> list[str]:
    """The command of bubblewrap, before the program that it runs.

    Namespaces of processes, users, network, hostname and communication are new; the root holds
    the files of the rules, a list of the processes inside, and the working folder.
    """
    arguments = [program, "--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]
    arguments += ["--proc", "/proc", "--hostname", "sandbox"]
    for rule in rules:
        if rule.rights != LIST and os.path.exists(rule.path):
            kind = "--dev-bind" if rule.path.startswith("/dev/") else "--ro-bind"
            arguments += [kind, rule.path, rule.path]
    for path in package_files():
        arguments += ["--ro-bind", path, f"{PACKAGES}/agentrl_jax/{os.path.basename(path)}"]
    arguments += ["--bind", FOLDER, WORK, "--chdir", WORK]
    return [*arguments, "--seccomp", FILTER, "--"]
