"""`Snippet`: code for a sandbox; `Outcome`: what came of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentrl_jax.sandbox.limits import Limit, SandboxLimits


@dataclass(frozen=True)
class Language:
    """A language: what the SandboxFusion request form calls it, and the program that runs it."""

    name: str
    command: tuple[str, ...] = ()  # before the code's file; empty: this Python


PYTHON = Language("python")
BASH = Language("bash", ("/bin/bash", "--norc", "--noprofile"))


@dataclass(frozen=True)
class Snippet:
    """Code that is run once, in a process and a folder of its own."""

    code: str
    stdin: str = ""
    language: Language = PYTHON
    files: Mapping[str, bytes] = field(default_factory=dict)  # in its folder, by relative path
    seed: int = 0  # of Python's `random` and of numpy's, so that the same code prints the same


@dataclass(frozen=True)
class Outcome:
    """What a snippet printed and how it ended.

    `limit` is what the sandbox measured, or, for refusals that a program sees as an error
    (`memory`, `disk`, `processes`, `files`), the error that ended it: a program may imitate the
    latter, for no gain.
    """

    stdout: str
    stderr: str
    exit_code: int | None  # None: a signal or a limit ended it
    signal: int | None = None
    limit: Limit | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and self.limit is None


_ERRORS: tuple[tuple[str, Limit], ...] = (
    (r"(\w+\.)*(_Array)?MemoryError\b", "memory"),
    (r"OSError: \[Errno (28|27|122)\]", "disk"),
    (r".*: No space left on device$", "disk"),
    (r"RuntimeError: can't start new thread$", "processes"),
    (r"(BlockingIO|OS)Error: \[Errno 11\]", "processes"),
    (r".*fork: .*Resource temporarily unavailable$", "processes"),
    (r"OSError: \[Errno 24\]", "files"),
    (r".*: Too many open files$", "files"),
)


def limit_of_error(stderr: str) -> Limit | None:
    """The limit that the last line of a program's errors speaks of."""
    lines = stderr.rstrip().rsplit("\n", 1)
    for pattern, limit in _ERRORS:
        if re.match(pattern, lines[-1][:1000]):
            return limit
    return None


def describe_end(outcome: Outcome, limits: SandboxLimits) -> str:
    """One sentence on how a snippet ended; empty: by itself, with exit code 0."""
    amounts: dict[Limit, str] = {
        "time": f"{limits.seconds:g} s",
        "cpu": f"{limits.cpu_seconds:g} s of CPU time",
        "memory": f"{limits.memory_mb} MB of memory",
        "disk": f"{limits.disk_mb} MB of disk",
        "output": f"{limits.output_kb} KB of output",
        "processes": f"{limits.tasks} processes and threads",
        "files": f"{limits.open_files} open files",
    }
    if outcome.limit is not None:
        return f"It exceeded its limit of {amounts[outcome.limit]}."
    if outcome.signal is not None:
        return f"It was ended by signal {outcome.signal}."
    return f"Its exit code is {outcome.exit_code}." if outcome.exit_code else ""
