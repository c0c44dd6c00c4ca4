"""The attack battery: each attack on a sandbox, and on one whose protection is switched off."""

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from typing import Any

from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.launch.benchmarks.sandbox.attack import SUCCEEDED, Attack
from agentrl_jax.launch.benchmarks.sandbox.file_attacks import FILE_ATTACKS
from agentrl_jax.launch.benchmarks.sandbox.kernel_attacks import KERNEL_ATTACKS
from agentrl_jax.launch.benchmarks.sandbox.process_attacks import PROCESS_ATTACKS
from agentrl_jax.launch.benchmarks.sandbox.targets import Targets
from agentrl_jax.sandbox.confinement import Protections
from agentrl_jax.sandbox.ladder import zygote_config
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.snippet import Outcome, Snippet
from agentrl_jax.sandbox.zygote_sandbox import ZygoteSandbox

ATTACKS = (*FILE_ATTACKS, *PROCESS_ATTACKS, *KERNEL_ATTACKS)
LIMITS = SandboxLimits(seconds=10.0, memory_mb=256, disk_mb=8)
CLEAN_PARENT = "clean parent"


@dataclass(frozen=True)
class Result:
    """What an attack achieved; nothing: it is held."""

    attack: Attack
    achieved: tuple[str, ...]
    outcome: Outcome | None = None

    @property
    def is_held(self) -> bool:
        return not self.achieved


class Battery:
    """Attacks on sandboxes, with the targets that they share; a context manager."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._targets = self._stack.enter_context(Targets())
        self._values: dict[int, dict[str, Any]] = {}
        self._weakened: dict[tuple[str, ...], ZygoteSandbox] = {}

    def __enter__(self) -> "Battery":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, attack: Attack, sandbox: Sandbox) -> Result:
        """An attack on a sandbox."""
        return self._attack(attack, sandbox, replace(LIMITS, **attack.limits))

    def run_weakened(self, attack: Attack) -> Result:
        """The attack where what holds it is switched off; it should succeed."""
        if attack.held_by == (CLEAN_PARENT,):
            return self._from_unclean_parent(attack)
        limits = replace(LIMITS, **{**attack.limits, **attack.loose_limits})
        return self._attack(attack, self._without(attack.held_by), limits)

    def _attack(self, attack: Attack, sandbox: Sandbox, limits: SandboxLimits) -> Result:
        if id(sandbox) not in self._values:
            self._values[id(sandbox)] = self._targets.values(
                sandbox, LIMITS.memory_mb, LIMITS.disk_mb
            )
        program = attack.program(self._values[id(sandbox)])
        try:
            outcome = sandbox.run(Snippet(program), limits)
        except EnvironmentFailure as error:
            return Result(attack, (f"the sandbox failed: {error}",))
        achieved = _achievements(outcome)
        for name, value in attack.expected.items():
            if getattr(outcome, name) != value:
                achieved.append(f"{name} is {getattr(outcome, name)}, not {value}")
        return Result(attack, (*achieved, *self._targets.damage()), outcome)

    def _without(self, protections: tuple[str, ...]) -> ZygoteSandbox:
        """A sandbox in which these protections are switched off."""
        if protections not in self._weakened:
            switches = [field.name not in protections for field in fields(Protections)]
            sandbox = ZygoteSandbox(replace(zygote_config(), protections=switches), LIMITS)
            self._stack.callback(sandbox.close)
            self._weakened[protections] = sandbox
        return self._weakened[protections]

    def _from_unclean_parent(self, attack: Attack) -> Result:
        """The attack in a bare process that holds the secret and has the host's variables."""
        secret = self._targets.secret
        values = {"secret_hash": self._targets.secret_hash, "numbers": {}}
        program = f"secret = {secret!r}\n{attack.program(values)}"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "SECRET": secret},
            capture_output=True,
            text=True,
            timeout=60,
        )
        outcome = Outcome(done.stdout, done.stderr, done.returncode)
        return Result(attack, tuple(_achievements(outcome)), outcome)


def _achievements(outcome: Outcome) -> list[str]:
    output = f"{outcome.stdout}\n{outcome.stderr}"
    lines = [line for line in output.splitlines() if line.startswith(SUCCEEDED)]
    return sorted({line.removeprefix(SUCCEEDED).strip() or "succeeded" for line in lines})
