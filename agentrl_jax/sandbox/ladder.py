"""The ladder of sandboxes: what this machine has, and which of them a config gets."""

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.external import external
from agentrl_jax.sandbox.bubblewrap import find_bubblewrap, launcher, package_files
from agentrl_jax.sandbox.gvisor_sandbox import GVisorSandbox
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.readable_files import (
    module_rules,
    python_rules,
    standard_search_path,
    system_rules,
)
from agentrl_jax.sandbox.remote_sandbox import RemoteSandbox
from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.self_test import check_sandbox
from agentrl_jax.sandbox.zygote_protocol import ZygoteConfig
from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox


class Rung(IntEnum):
    """Kinds of sandboxes, the weakest first."""

    LANDLOCK = 1
    BUBBLEWRAP = 2
    GVISOR = 3
    REMOTE = 4


@dataclass(frozen=True)
class SandboxConfig:
    """Which sandbox, and what its snippets may use.

    Raises:
        UserError: there is no such rung.
    """

    # The weakest that will do: landlock, bubblewrap, gvisor or remote. The weakest of those that
    # are here and strong enough is used, since it is the fastest.
    minimum: str = "landlock"
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    modules: tuple[str, ...] = ()  # installed packages that snippets may import, as numpy
    # A server with SandboxFusion's /run_code, which is then used; "": this machine.
    url: str = field(default="", metadata=external("server"))
    key_variable: str = ""  # the environment variable with that server's key; "": none

    def __post_init__(self) -> None:
        if self.minimum.upper() not in Rung.__members__:
            names = ", ".join(rung.name.lower() for rung in Rung)
            raise UserError(f"a sandbox is one of {names}, not {self.minimum!r}")

    @property
    def minimum_rung(self) -> Rung:
        return Rung[self.minimum.upper()]


def open_sandbox(config: SandboxConfig) -> Sandbox:
    """The weakest sandbox that is here, holds a test, and is no weaker than the config demands.

    Raises:
        UserError: there is none.
    """
    if config.url:
        return _tested(Rung.REMOTE, lambda: open_rung(Rung.REMOTE, config))
    reasons = []
    for rung in Rung:
        if rung < config.minimum_rung:
            continue
        try:
            return _tested(rung, lambda: open_rung(rung, config))  # noqa: B023  called at once
        except (UserError, OSError) as error:
            reasons.append(f"{rung.name.lower()}: {error}")
    raise UserError(
        f"no sandbox here is as strong as {config.minimum!r}, so no code is run "
        f"({'; '.join(reasons)})"
    )


def open_rung(rung: Rung, config: SandboxConfig) -> Sandbox:
    """The sandbox of a rung, without a test. Raises UserError where it is not here."""
    if rung == Rung.REMOTE:
        if not config.url:
            raise UserError("no url is given")
        return RemoteSandbox(config.url, config.limits, config.key_variable)
    if platform.system() != "Linux":
        raise UserError(f"it needs Linux, not {platform.system()}: give the url of a server")
    if rung == Rung.GVISOR:
        return GVisorSandbox(config.limits, config.modules)
    zygote = zygote_config(config.modules, find_bubblewrap() if rung == Rung.BUBBLEWRAP else "")
    return ZygoteSandbox(zygote, config.limits)


def zygote_config(modules: tuple[str, ...] = (), bubblewrap: str = "") -> ZygoteConfig:
    """What a zygote is started with; `bubblewrap`: its path, where snippets run in it."""
    packages, rules = module_rules(modules)
    rules = [*system_rules(), *python_rules(), *rules]
    return ZygoteConfig(
        standard_search_path(),
        packages,
        modules,
        rules,
        launcher(bubblewrap, rules) if bubblewrap else (),
        package_files() if bubblewrap else (),
    )


def _tested(rung: Rung, open_it: Callable[[], Sandbox]) -> Sandbox:
    """A sandbox that holds a test. Raises UserError where it does not."""
    sandbox = open_it()
    try:
        check_sandbox(sandbox, is_here=rung != Rung.REMOTE)
    except EnvironmentFailure as error:
        sandbox.close()
        raise UserError(str(error)) from error
    except BaseException:
        sandbox.close()
        raise
    print(f"code runs in the sandbox {rung.name.lower()}: {sandbox.description}", file=sys.stderr)
    return sandbox
