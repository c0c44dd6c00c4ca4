"""What runs first in the view of a container: it restricts itself, and runs the snippet.

It imports little, since each snippet pays for it.
"""

import binascii
import contextlib
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from agentrl_jax.sandbox import cells, kernel, landlock, offered_packages
from agentrl_jax.sandbox.landlock import FileRule
from agentrl_jax.sandbox.snippet_run import STARTED, prepare, read_request, run_snippet

WORK, PACKAGES = "/work", "/run/agentrl"  # the working folder, and where this package is


def main(text: str) -> NoReturn:
    """In bubblewrap: restrict this process to the files of the rules, and run the snippet."""
    start: dict[str, Any] = json.loads(text)
    if start["abi"]:
        rules = [FileRule(*rule) for rule in start["rules"]]
        inner = [
            FileRule(WORK, landlock.WRITE | landlock.EXECUTE),
            FileRule("/proc", landlock.READ),
        ]
        landlock.restrict(landlock.open_rules([*rules, *inner]), start["abi"])
    kernel.install_filter(binascii.a2b_base64(start["filter"]))
    _run(start, lambda: os.write(start["leash"], STARTED), start["session"])


def main_in_gvisor(text: str) -> NoReturn:
    """In gVisor: limit and filter this process, print a line that the host expects, and run."""
    start: dict[str, Any] = json.loads(text)
    for kind, bound in start["rlimits"]:
        with contextlib.suppress(OSError, ValueError):  # gVisor has not all of them
            resource.setrlimit(kind, (bound, bound))
    kernel.prctl(kernel.SET_NO_NEW_PRIVILEGES, 1)
    kernel.install_filter(binascii.a2b_base64(start["filter"]))
    request = os.open(start["request"], os.O_RDONLY)
    _run({**start, "request": request}, lambda: os.write(1, start["line"].encode()), ())


def _run(start: dict[str, Any], announce: Callable[[], Any], session: Sequence[int]) -> NoReturn:
    sys.path[:] = start["search_path"]
    offered_packages.offer(start["packages"])
    cells.warm_up()
    fields = read_request(start["request"])
    prepare(WORK, fields)
    run_snippet(fields, announce, session, start["open_files"])
