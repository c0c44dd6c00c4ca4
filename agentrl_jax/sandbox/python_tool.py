"""`PythonTool`: a tool by which a policy runs Python in a sandbox."""

import atexit
import functools
import threading
import weakref
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.ladder import SandboxConfig, open_sandbox
from agentrl_jax.sandbox.sandbox import ReplayedSession, Sandbox, Session
from agentrl_jax.sandbox.snippet import Outcome, describe_end
from agentrl_jax.tools import Tool, tool

_GRACE_SECONDS = 10.0  # that the sandbox needs at most to end a call that is late
_lock = threading.Lock()


class PythonTool:
    """The tool `python` of one environment: code in a session whose variables stay.

    An environment lists `self.python_tool.tool` among its tools, calls `restart` when it is reset
    and `close` when it is closed. The environments of a worker share one sandbox. A copy, pickled
    ones too, has a session of its own, in which the same code has run.

    Args:
        config: which sandbox, and the limits of a call.
        max_characters: of what the policy sees of a call.
        replayed: each call runs all earlier code again in a new process; else one process stays.
    """

    def __init__(
        self,
        config: SandboxConfig = SandboxConfig(),  # noqa: B008  immutable
        max_characters: int = Tool.max_characters,
        replayed: bool = False,
    ) -> None:
        self._config, self._max_characters, self._replayed = config, max_characters, replayed
        self._session: Session | None = None  # None: it begins with the next call
        self._close_session: weakref.finalize | None = None  # also closes it when this is deleted
        self._is_open = False
        self._seed = 0
        self._files: Mapping[str, bytes] = {}
        self.history: tuple[str, ...] = ()  # the code that has run in the session
        self.last_outcome: Outcome | None = None  # of the last call

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_close_session": None}

    @property
    def tool(self) -> Tool:
        return tool(self.python, self.seconds, self._max_characters)

    @property
    def seconds(self) -> float:
        """That a call may take, the end of a late one included."""
        return self._config.limits.seconds + _GRACE_SECONDS

    def restart(self, seed: int = 0, files: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Begin a new session without variables.

        Args:
            seed: see `Snippet`.
            files: see `Snippet`; only a replayed session has any.

        Raises:
            UserError: there is no sandbox here as the config demands, or there are files and the
                session is not replayed.
        """
        if files and not self._replayed:
            raise UserError("only a replayed session of the tool python has files")
        self.close()
        shared_sandbox(self._config)
        self._is_open, self._seed, self.last_outcome = True, seed, None
        self._files = dict(files)

    def python(self, code: str) -> str:
        """Run Python code. Variables stay until the next call; the output is what it prints, and
        the value of an expression in the last line.

        Args:
            code: the code
        """
        if not self._is_open:
            raise UserError("the tool python has no session: call restart at each reset")
        session = self._session or self._resume()
        outcome = session.run(code)
        self.history, self.last_outcome = tuple(session.history), outcome
        text = f"{outcome.stdout}{outcome.stderr}"
        notes = [describe_end(outcome, self._config.limits)] if outcome.exit_code != 1 else []
        if session.is_over:
            self._end_session()
            notes.append("The session has ended: all variables are lost.")
        note = " ".join(filter(None, notes))
        separator = "\n" if text and not text.endswith("\n") and note else ""
        return f"{text}{separator}{note}" or "(no output)"

    def _resume(self) -> Session:
        """Begin a session in which the code of the history has run."""
        sandbox, seed = shared_sandbox(self._config), self._seed
        session = (
            ReplayedSession(sandbox, seed, None, self._files)
            if self._replayed
            else sandbox.session(seed)
        )
        self._session, self._close_session = session, weakref.finalize(self, session.close)
        if isinstance(session, ReplayedSession):
            session.history = list(self.history)
        else:
            for code in self.history:
                session.run(code)
        return session

    def _end_session(self) -> None:
        if self._close_session is not None:
            self._close_session()
        self._session, self._close_session, self.history = None, None, ()

    def close(self) -> None:
        """End the session."""
        self._end_session()
        self._is_open = False


def shared_sandbox(config: SandboxConfig) -> Sandbox:
    """The one sandbox of this process with this config; it is closed when Python exits.

    Raises:
        UserError: there is no sandbox here as the config demands.
    """
    with _lock:
        return _shared_sandbox(config)


@functools.cache
def _shared_sandbox(config: SandboxConfig) -> Sandbox:
    sandbox = open_sandbox(config)
    atexit.register(sandbox.close)
    return sandbox
