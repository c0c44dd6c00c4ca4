"""`Tool`: another program, called by its list of arguments; a dry run prints the same call instead."""

import os
import re
import shlex
import subprocess
import sys

from agentrl_jax.errors import UserError

_SECRET = re.compile("TOKEN(?!IZ)|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


class ToolFailed(UserError):
    """A program said no; `output` is what it said."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


class Tool:
    """A program on the PATH. What it is told is always shown, and no value of a secret variable ever is."""

    def __init__(self, name: str, dry_run: bool) -> None:
        self.name, self.dry_run = name, dry_run

    def __call__(self, *arguments: str, stdin: str = "", follow: bool = False) -> str:
        """What it prints; with `follow` that goes to the terminal as it comes. Raises ToolFailed where its exit status is not 0."""
        argv = [self.name, *arguments]
        shown = in_shell(argv, stdin)
        for name, value in secrets().items():
            if value in shown:
                raise UserError(f"the value of {name} would be seen in a call of {self.name}: name the variable with --secret instead")
        print(shown, file=sys.stdout if self.dry_run else sys.stderr, flush=True)
        if self.dry_run:
            return ""
        try:
            pipe = None if follow else subprocess.PIPE
            done = subprocess.run(argv, input=stdin, stdout=pipe, stderr=pipe, text=True, errors="replace")
        except OSError as error:
            raise UserError(
                f"{self.name} cannot be run ({error.strerror}): install it, or see with --dry_run what it would be told"
            ) from error
        if done.returncode:
            said = redacted(f"{done.stderr or ''}{done.stdout or ''}".strip())
            raise ToolFailed(f"{self.name} ended with exit code {done.returncode}: {said or 'it said nothing'}", said)
        return done.stdout or ""


def in_shell(argv: list[str], stdin: str = "") -> str:
    """The call as one would type it: in_shell(["cat", "a b"], "hello\\n") -> cat 'a b' <<'END' and so on."""
    if not stdin:
        return shlex.join(argv)
    end = "END"
    while end in stdin.splitlines():
        end += "_"
    return f"{shlex.join(argv)} <<'{end}'\n{stdin}{end}"


def secrets() -> dict[str, str]:
    """The variables of this environment whose names say that nobody may see their values."""
    return {name: value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8}


def redacted(text: str) -> str:
    for name, value in secrets().items():
        text = text.replace(value, f"<{name}>")
    return text


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None
