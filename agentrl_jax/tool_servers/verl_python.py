"""`VerlPython`: the tool `python` of a VerlTool server, in place of a sandbox of this machine."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.sandbox.snippet import Outcome
from agentrl_jax.tool_servers.json_client import JsonClient
from agentrl_jax.tool_servers.verl_tool import VerlToolSession

FENCED = "```python\n{code}\n```"
_TRACEBACK = "Traceback (most recent call last)"


class VerlPython:
    """Code as actions of a trajectory on a VerlTool server (arXiv 2509.01055).

    It takes the place of a `PythonTool`. A copy, pickled ones too, has a trajectory of its own, in
    which the same code has run. The protocol has no exit code: a traceback in the text, or an
    action that is not valid, is a failure.

    Args:
        client: of the server.
        action: how the server reads code; `{code}` stands for it.
    """

    def __init__(self, client: JsonClient, action: str = FENCED) -> None:
        """Sends nothing yet. Raises UserError where a setting is wrong."""
        if "{code}" not in action:
            raise UserError(f"action must contain {{code}}, the code's place; it is {action!r}")
        self._client, self._action = client.check(), action
        self._session: VerlToolSession | None = None  # None: it begins with the next call
        self._is_open = False
        self.history: tuple[str, ...] = ()  # the code that has run in the trajectory
        self.last_outcome: Outcome | None = None  # of the last call

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    @property
    def seconds(self) -> float:
        """That a call may take."""
        return self._client.seconds

    def restart(self, seed: int = 0, files: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Begin another trajectory; the server knows neither seeds nor files.

        Raises:
            UserError: there are files.
        """
        if files:
            raise UserError("the problem has files, which a VerlTool server cannot be given")
        self.close()
        self._is_open, self.last_outcome = True, None

    def python(self, code: str) -> str:
        """What the server answers to code.

        Raises:
            EnvironmentFailure: the server or its tool failed.
            UserError: `restart` was not called, or the server refuses the key.
        """
        if not self._is_open:
            raise UserError("the tool python has no session: call restart at each reset")
        if self._session is None:
            self._session = VerlToolSession(self._client)
            self._session.restart()
            for earlier in self.history:
                self._session.act(self._action.replace("{code}", earlier))
        answer = self._session.act(self._action.replace("{code}", code))
        self.history = (*self.history, code)
        text = answer.text or ("" if answer.is_valid else f"Error: {answer.reason or 'no code'}")
        printed, separator, error = text.partition(_TRACEBACK)
        has_failed = bool(separator) or not answer.is_valid
        self.last_outcome = (
            Outcome(printed, separator + error, 1) if has_failed else Outcome(text, "", 0)
        )
        return text or "(no output)"

    def close(self) -> None:
        """End the trajectory."""
        session, self._session = self._session, None
        self.history, self._is_open = (), False
        if session is not None:
            session.close()
