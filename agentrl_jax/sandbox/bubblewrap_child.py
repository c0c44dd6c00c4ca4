"""A start of bubblewrap: the zygote's child becomes `bwrap`, which runs `contained_run`."""

import base64
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from agentrl_jax.sandbox.confinement import Confinement
from agentrl_jax.sandbox.contained_run import PACKAGES
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.zygote_protocol import ZygoteConfig

FOLDER, FILTER = "{folder}", "{filter}"  # in the launcher's arguments
_BWRAP_TASKS = 3  # bwrap itself, its process 1, and its child before it becomes the program
_PYTHON_BYTES = 64 * 2**20  # what a Python maps before it runs anything
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[2]); "
    "from agentrl_jax.sandbox.contained_run import main; main(sys.argv[1])"
)


def execute_bubblewrap(
    config: ZygoteConfig,
    confinement: Confinement,
    limits: SandboxLimits,
    folder: str,
    request: int,
    leash: int,
    session: Sequence[int],
) -> NoReturn:
    """Replace this process, which is isolated, by `bwrap`, and in its view by Python.

    Raises:
        OSError: there is no such program.
    """
    confinement.set_limits(limits, _PYTHON_BYTES, bool(session), _BWRAP_TASKS)
    # Bubblewrap's own filter lets Python start, which then installs the snippet's.
    program = confinement.filter_program(limits, may_execute=True, may_restrict=True)
    strict = confinement.filter_program(limits, limits.subprocesses)
    descriptor = os.memfd_create("filter", 0)
    os.write(descriptor, program)
    os.lseek(descriptor, 0, os.SEEK_SET)
    for inherited in (request, leash, *session):
        os.set_inheritable(inherited, True)
    start = {
        "open_files": limits.open_files,
        "filter": base64.b64encode(strict).decode(),
        "abi": confinement.abi,
        "rules": list(config.rules),
        "search_path": list(config.search_path),
        "packages": dict(config.packages),
        "request": request,
        "leash": leash,
        "session": list(session),
    }
    arguments = [_filled(argument, folder, descriptor) for argument in config.launcher]
    python = [sys._base_executable, "-S", "-s", "-P", "-c", _PROGRAM]  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the program's to handle, not bwrap's
    os.execve(arguments[0], [*arguments, *python, json.dumps(start), PACKAGES], dict(os.environ))


def _filled(argument: str, folder: str, descriptor: int) -> str:
    return argument.replace(FOLDER, folder).replace(FILTER, str(descriptor))
