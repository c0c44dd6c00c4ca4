"""`Training`: what every launcher is told about a run."""

import re
from dataclasses import dataclass, field

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import is_secret
from agentrl_jax.launch.options import option

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]*")
_TOKEN = re.compile(r"hf_\w{16,}|[0-9a-f]{40,}|wandb_\w{16,}")  # a token itself, not the name of one


@dataclass
class Training:
    """One run of `agentrl_jax.launch.train`, the same command in every process."""

    name: str = option("", "What the run is called: lower-case letters, digits and dashes.")
    config: str = option("", "The config file, or file.py:variant. What follows -- on the command line goes to agentrl-train.")
    run_dir: str = option("", "Where the run lives; on a disk that outlives the machines, or a restart begins anew.")
    env: tuple[str, ...] = option((), "NAME=VALUE for the environment of the run; may be repeated, never for a secret.")
    secret: tuple[str, ...] = option((), "A secret variable of the run, as docs/launching.md says; may be repeated.")
    dry_run: bool = option(False, "Print what would be run, and run nothing.")
    arguments: tuple[str, ...] = field(default=())

    def check(self) -> None:
        """Raises UserError where a flag cannot be."""
        if not _NAME.fullmatch(self.name):
            raise UserError(f"--name={self.name} must be 1 to 40 lower-case letters, digits and dashes, and begin with a letter")
        if any("\0" in text for text in (self.config, self.run_dir, *self.env, *self.arguments)):
            raise UserError("no argument may hold a NUL character")
        for text in self.env:
            name, equals, _ = text.partition("=")
            if not equals or not _VARIABLE.fullmatch(name):
                raise UserError(f"--env={name} is not of the form NAME=VALUE")
            if is_secret(name):
                raise UserError(f"--env={name}=... would show a secret to everybody: give it with --secret")

    def references(self) -> dict[str, str]:
        """--secret=VARIABLE=NAME as {VARIABLE: NAME}, where NAME is what a store of secrets calls it."""
        found = {}
        for variable, _, name in (text.partition("=") for text in self.secret):
            if not _VARIABLE.fullmatch(variable) or not _REFERENCE.fullmatch(name) or _TOKEN.fullmatch(name):
                raise UserError(f"--secret={variable}=... must be VARIABLE=NAME, with the name of a stored secret and not its value")
            found[variable] = name
        return found

    def train(self, python: str, config: str, run_dir: str) -> list[str]:
        """The command of every process."""
        if not config:
            raise UserError("say what to train with --config=configs/wordle_grpo.py (see configs/ for more)")
        where = [f"--run_dir={run_dir}"] if run_dir else []
        command = [python, "-m", "agentrl_jax.launch.train", f"--config={config}", *where, *self.arguments]
        return ["env", *self.env, *command] if self.env else command
