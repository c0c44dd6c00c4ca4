"""`PythonTool`: a tool by which a policy runs Python in a sandbox."""

import atexit
import functools
import threading

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.ladder import SandboxConfig, open_sandbox
from agentrl_jax.sandbox.sandbox import Sandbox, Session
from agentrl_jax.sandbox.snippet import Outcome, describe_end
from agentrl_jax.tools import Tool, tool

_GRACE_SECONDS = 10.0  # that the sandbox needs at most to end a call that is late
_lock = threading.Lock()


class PythonTool:
    """The tool `python` of one environment: code in a session whose variables stay.

    An environment lists `self.python_tool.tool` among its tools, calls `restart` when it is reset
    and `close` when it is closed. The environments of a worker share one sandbox.

    Args:
        config: which sandbox, and the limits of a call.
        max_characters: of what the policy sees of a call.
    """

    def __init__(
        self,
        config: SandboxConfig = SandboxConfig(),  # noqa: B008  immutable
        max_characters: int = Tool.max_characters,
    ) -> None:
        self._config, self._max_characters = config, max_characters
        self._session: Session | None = None
        self._seed = 0
        self.last_outcome: Outcome | None = None  # of the last call

    @property
    def tool(self) -> Tool:
        seconds = self._config.limits.seconds + _GRACE_SECONDS
        return tool(self.python, seconds, self._max_characters)

    def restart(self, seed: int = 0) -> None:
        """Begin a new session without variables.

        Raises:
            EnvironmentFailure: the sandbox failed.
            UserError: there is no sandbox here as the config demands.
        """
        self.close()
        self._seed, self.last_outcome = seed, None
        self._session = shared_sandbox(self._config).session(seed)

    def python(self, code: str) -> str:
        """Run Python code. Variables stay until the next call; the output is what it prints, and
        the value of an expression in the last line.

        Args:
            code: the code
        """
        if self._session is None:
            raise UserError("the tool python has no session: call restart at each reset")
        outcome = self._session.run(code)
        self.last_outcome = outcome
        text = f"{outcome.stdout}{outcome.stderr}"
        notes = [describe_end(outcome, self._config.limits)] if outcome.exit_code != 1 else []
        if self._session.is_over:
            self.restart(self._seed)
            self.last_outcome = outcome
            notes.append("The session has ended: all variables are lost.")
        note = " ".join(filter(None, notes))
        separator = "\n" if text and not text.endswith("\n") and note else ""
        return f"{text}{separator}{note}" or "(no output)"

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()
            self._session = None


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
