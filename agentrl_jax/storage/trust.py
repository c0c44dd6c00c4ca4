"""What the configs of run folders may name: this package, and what is trusted by name."""

import shlex
import sys
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.external import external_names

# Modules (optax, since a config may name an optimizer of it), programs and servers.
_trusted = {"agentrl_jax", "optax"}


def trust(name: str) -> None:
    """Let the configs of run folders name a module (with all of its package), program or server.

    Raises:
        UserError: the name is empty.
    """
    if not name.strip():
        raise UserError("--trust needs the name of a module, a program or a server")
    _trusted.add(name)


def is_trusted_module(module: str) -> bool:
    """Whether a module, or a package around it, is this one or was passed to `trust`."""
    top = module.split(".")[0]
    return any(top == name.split(".")[0] for name in _trusted)


def _is_trusted_program(command: str) -> bool:
    """Whether a command was passed to `trust`, or is a program of this package.

    Launchers are none: a flag of theirs may name any code.
    """
    python, flag, module, *_ = (*command.split(), "", "", "")
    return command in _trusted or (
        (python, flag) == ("{python}", "-m") and module.startswith("agentrl_jax.envs.programs.")
    )


def check_external_names(config: Any) -> None:
    """Check that a config from a run folder names nothing outside this package that is not trusted.

    Raises:
        UserError: it names a module, a program or a server that was not passed to `trust`.
    """
    checks = {
        # An environment's module only registers; where it is here already, nothing new is imported.
        "module": ("imports", lambda name: name in sys.modules or is_trusted_module(name)),
        "program": ("runs", _is_trusted_program),
        "server": ("connects to", _trusted.__contains__),
    }
    for kind, name, location in external_names(config):
        verb, is_trusted = checks[kind]
        if not is_trusted(name):
            raise UserError(
                f"the run's {location} {verb} {name}, which is not part of this package: "
                f"if you trust it, pass --trust={shlex.quote(name)}"
            )
