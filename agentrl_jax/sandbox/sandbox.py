"""`Sandbox`: where code runs that a policy wrote; `Session`: its state stays between calls."""

import asyncio
import functools
import json
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Self

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.limits import SandboxLimits
from agentrl_jax.sandbox.snippet import Outcome, Snippet

MAX_REQUEST_BYTES = 16 * 2**20  # code, stdin and files
MAX_CONCURRENT = 64  # of `run_async`; others wait
MAX_FILES = 1000  # of a snippet
MAX_PATH_BYTES, MAX_NAME_BYTES = 1024, 255  # of a file's path, and of a name in it
BLOCK_BYTES = 4096  # of a disk: a file takes whole ones
_Entry = tuple[str, SandboxLimits | None]


class Session(ABC):
    """Code in one process or folder, call after call; a context manager that closes it."""

    def __init__(self) -> None:
        self.history: list[str] = []  # the code of all calls

    @abstractmethod
    def run(self, code: str) -> Outcome:
        """Run code after all code before.

        A call that exceeds its time is interrupted and the state stays; where that does not help,
        and where code ends the process or exceeds another limit, the session is over.

        Raises:
            EnvironmentFailure: the sandbox itself failed.
            UserError: the session is over.
        """

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the session takes no more calls."""

    @abstractmethod
    def fork(self) -> "Session":
        """A session with the same state, by running the same code again."""

    def close(self) -> None:  # noqa: B027  a session without a process has nothing to close
        """End the session's process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sandbox(ABC):
    """A sandbox; a context manager that closes it. Threads may share it."""

    description: str = ""  # what protects it, for the log

    def __init__(self, limits: SandboxLimits) -> None:
        self.limits = limits

    @abstractmethod
    def run(self, snippet: Snippet, limits: SandboxLimits | None = None) -> Outcome:
        """Run a snippet to its end, within the limits; None: the sandbox's.

        Raises:
            EnvironmentFailure: the sandbox itself failed, and the snippet is not to blame.
            UserError: this sandbox cannot run such a snippet.
        """

    @abstractmethod
    def session(self, seed: int = 0, limits: SandboxLimits | None = None) -> Session:
        """A new session of Python, with limits for each of its calls."""

    async def run_async(self, snippet: Snippet, limits: SandboxLimits | None = None) -> Outcome:
        """`run`, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_threads(), self.run, snippet, limits)

    def close(self) -> None:  # noqa: B027  a remote sandbox has nothing to close
        """End all processes of the sandbox."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_CONCURRENT, "sandbox")


def check_snippet(snippet: Snippet, limits: SandboxLimits) -> None:
    """Raises UserError for a snippet that no sandbox can run so."""
    if snippet.language.command and not limits.subprocesses:
        raise UserError(
            f"{snippet.language.name} starts programs: give SandboxLimits(subprocesses=True)"
        )
    _check_files(snippet.files, limits)
    size = len(snippet.code) + len(snippet.stdin) + sum(map(len, snippet.files.values()))
    if size > MAX_REQUEST_BYTES:
        raise UserError(f"a snippet may have at most {MAX_REQUEST_BYTES:,} bytes, not {size:,}")


def _check_files(files: Mapping[str, bytes], limits: SandboxLimits) -> None:
    """Raises UserError for files that cannot be written."""
    if len(files) > MAX_FILES:
        raise UserError(f"a snippet may have at most {MAX_FILES:,} files, not {len(files):,}")
    for path in files:
        normal, encoded = posixpath.normpath(path), path.encode(errors="replace")
        is_within = path == normal != "." and not normal.startswith(("/", ".."))
        if not path or not is_within or "\0" in path or encoded.decode() != path:
            raise UserError(f"a snippet's file needs a path within its folder, not {path!r:.80}")
        if len(encoded) > MAX_PATH_BYTES or max(map(len, encoded.split(b"/"))) > MAX_NAME_BYTES:
            raise UserError(f"the path of a snippet's file is too long: {path!r:.80}")
        if any(str(folder) in files for folder in PurePosixPath(path).parents):
            raise UserError(f"the path of a snippet's file goes through another one: {path!r:.80}")
    blocks = sum(-(-len(content) // BLOCK_BYTES) for content in files.values())
    if blocks * BLOCK_BYTES > limits.disk_mb * 2**20:
        raise UserError(f"a snippet's files need more than the {limits.disk_mb} MB of its disk")


class ReplayedSession(Session):
    """A session of a sandbox without processes that stay: each call runs all earlier code again,
    without its output, in a folder with these files.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        seed: int,
        limits: SandboxLimits | None,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._sandbox, self._seed, self._limits, self._files = sandbox, seed, limits, files

    @property
    def is_over(self) -> bool:
        return False

    def run(self, code: str) -> Outcome:
        program = _REPLAY.format(cells=json.dumps(json.dumps([*self.history, code])))
        outcome = self._sandbox.run(
            Snippet(program, files=self._files, seed=self._seed), self._limits
        )
        if outcome.limit is None and outcome.signal is None:  # else it would end all later calls
            self.history.append(code)
        return outcome

    def fork(self) -> "ReplayedSession":
        copy = ReplayedSession(self._sandbox, self._seed, self._limits, self._files)
        copy.history = list(self.history)
        return copy


# Runs cells in one namespace; only the last one's output, value and exception are seen.
_REPLAY = """
import ast, contextlib, io, json, sys, traceback

def _run_cell(code, names, path):
    tree = ast.parse(code, path)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, path, "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), path, "eval"), names)
        if value is not None:
            print(repr(value))

def _run_cells(cells):
    names = {{"__name__": "__main__"}}
    for i, code in enumerate(cells[:-1]):
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            with contextlib.suppress(BaseException):
                _run_cell(code, names, f"<cell {{i + 1}}>")
    try:
        _run_cell(cells[-1], names, f"<cell {{len(cells)}}>")
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell"):
            trace = trace.tb_next
        sys.stderr.write("".join(traceback.format_exception(type(error), error, trace)))
        sys.exit(1)

_run_cells(json.loads({cells}))
"""
