"""`ServedCodeProblems`: `CodeProblems` whose code runs on a VerlTool server."""

from typing import Any, ClassVar

from agentrl_jax.envs.code.code_problems import CodeProblems
from agentrl_jax.tool_servers.json_client import JsonClient
from agentrl_jax.tool_servers.verl_python import FENCED, VerlPython


class ServedCodeProblems(CodeProblems):
    """As `CodeProblems`, but the tool `python` is that of a VerlTool server (arXiv 2509.01055).

    An episode is a trajectory of the server, which keeps its variables. A server that is away,
    late or talks nonsense is a failure of the environment. Answers are checked here.

    Args:
        url: of the server.
        key_variable: the environment variable with its bearer token; empty: none.
        action: how the server reads code; `{code}` stands for it.
        request_seconds: of a request.
        options: those of `CodeProblems`; the server's own limits are in place of `seconds`.
    """

    server_options: ClassVar[tuple[str, ...]] = ("url",)

    def __init__(
        self,
        url: str = "http://127.0.0.1:5000",
        key_variable: str = "",
        action: str = FENCED,
        request_seconds: float = 30.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.python_tool = VerlPython(JsonClient(url, key_variable, request_seconds), action)
