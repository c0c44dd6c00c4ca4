"""`ExternalTool`: another program, called with a list of arguments; a dry run only prints it."""

import os
import re
import shlex
import subprocess
import sys

from agentrl_jax.errors import UserError

_SECRET_NAME = re.compile("TOKEN(?!IZ)|KEY|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


class ExternalToolError(UserError):
    """A program failed; `output` is what it printed."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


class ExternalTool:
    """A program on the PATH. Every call is printed; one with a secret's value is refused."""

    def __init__(self, name: str, dry_run: bool) -> None:
        self.name, self.dry_run = name, dry_run

    def __call__(self, *arguments: str, stdin: str = "", follow: bool = False) -> str:
        """Run it and return its output; with `follow` the output goes to the terminal instead.

        Raises:
            ExternalToolError: its exit status is not 0.
            UserError: it cannot be run, or an argument holds the value of a secret.
        """
        argv = [self.name, *arguments]
        printable = shell_command(argv, stdin)
        for name, value in secret_variables().items():
            if value in printable:
                raise UserError(
                    f"the value of {name} would be seen in a call of {self.name}: name the "
                    "variable with --secret instead"
                )
        print(printable, file=sys.stdout if self.dry_run else sys.stderr, flush=True)
        if self.dry_run:
            return ""
        try:
            pipe = None if follow else subprocess.PIPE
            done = subprocess.run(
                argv, input=stdin, stdout=pipe, stderr=pipe, text=True, errors="replace"
            )
        except OSError as error:
            raise UserError(
                f"{self.name} cannot be run ({error.strerror}): install it, or print "
                "its calls with --dry_run"
            ) from error
        if done.returncode:
            output = redact(f"{done.stderr or ''}{done.stdout or ''}".strip())
            raise ExternalToolError(
                f"{self.name} ended with exit code {done.returncode}: "
                f"{output or 'it printed nothing'}",
                output,
            )
        return done.stdout or ""


def shell_command(argv: list[str], stdin: str = "") -> str:
    """The call as a shell's text: shell_command(["cat", "a b"], "x\\n") -> cat 'a b' <<'END'..."""
    if not stdin:
        return shlex.join(argv)
    end = "END"
    while end in stdin.splitlines():
        end += "_"
    return f"{shlex.join(argv)} <<'{end}'\n{stdin}{end}"


def secret_variables() -> dict[str, str]:
    """The environment variables that are secrets by their names, 8 characters or longer."""
    return {
        name: value
        for name, value in os.environ.items()
        if _SECRET_NAME.search(name) and len(value) >= 8
    }


def redact(text: str) -> str:
    for name, value in secret_variables().items():
        text = text.replace(value, f"<{name}>")
    return text


def is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None
