"""`JobSpec`: the settings of a run that all launchers share."""

import re
from dataclasses import dataclass, field

from agentrl_jax.errors import UserError
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.external_tool import is_secret

_NAME_PATTERN = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
_VARIABLE_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME_PATTERN = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]*")
_TOKEN_PATTERN = re.compile(
    r"hf_\w{16,}|[0-9a-f]{40,}|wandb_\w{16,}"
)  # a token itself, not the name of one


@dataclass
class JobSpec:
    """One run of `agentrl_jax.launch.train`, the same command in every process."""

    name: str = option("", "The run's name: lower-case letters, digits and dashes.")
    config: str = option(
        "",
        "The config file, or file.py:variant. Flags after -- on the command line go to "
        "agentrl-train.",
    )
    run_dir: str = option(
        "", "The run folder, on a disk that outlives the machines: a restart resumes from it."
    )
    env: tuple[str, ...] = option(
        (), "NAME=VALUE for the environment of the run; may be repeated, never for a secret."
    )
    secret: tuple[str, ...] = option(
        (), "A secret variable of the run, as docs/launching.md says; may be repeated."
    )
    dry_run: bool = option(False, "Print what would be run, and run nothing.")
    arguments: tuple[str, ...] = field(default=())

    def check(self) -> None:
        """Raises UserError where a flag is invalid."""
        if not _NAME_PATTERN.fullmatch(self.name):
            raise UserError(
                f"--name={self.name} must be 1 to 40 lower-case letters, digits and dashes, "
                "and begin with a letter"
            )
        if any("\0" in text for text in (self.config, self.run_dir, *self.env, *self.arguments)):
            raise UserError("no argument may hold a NUL character")
        for text in self.env:
            name, equals, _ = text.partition("=")
            if not equals or not _VARIABLE_PATTERN.fullmatch(name):
                raise UserError(f"--env={name} is not of the form NAME=VALUE")
            if is_secret(name):
                raise UserError(f"--env={name}=... would show a secret: give it with --secret")

    def secret_references(self) -> dict[str, str]:
        """--secret=VARIABLE=NAME as {VARIABLE: NAME}; NAME is the secret's name in its store."""
        matches = {}
        for variable, _, name in (text.partition("=") for text in self.secret):
            if (
                not _VARIABLE_PATTERN.fullmatch(variable)
                or not _SECRET_NAME_PATTERN.fullmatch(name)
                or _TOKEN_PATTERN.fullmatch(name)
            ):
                raise UserError(
                    f"--secret={variable}=... must be VARIABLE=NAME, with the name of a stored "
                    "secret and not its value"
                )
            matches[variable] = name
        return matches

    def train_command(self, python: str, config: str, run_dir: str) -> list[str]:
        """The command of every process."""
        if not config:
            raise UserError(
                "give a config with --config=configs/wordle_grpo.py (see configs/ for more)"
            )
        run_dir_flag = [f"--run_dir={run_dir}"] if run_dir else []
        command = [
            python,
            "-m",
            "agentrl_jax.launch.train",
            f"--config={config}",
            *run_dir_flag,
            *self.arguments,
        ]
        return ["env", *self.env, *command] if self.env else command
