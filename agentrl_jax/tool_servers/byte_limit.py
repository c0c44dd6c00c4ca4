"""`ResponseWatch`: an HTTP client for an MCP server that bounds responses and notes refusals."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2

from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.tool_servers.mcp_config import McpServer


class _LimitedStream(httpx2.AsyncByteStream):
    """A response's body, which ends with an error beyond so many bytes."""

    def __init__(self, stream: Any, watch: "ResponseWatch") -> None:
        self._stream, self._watch = stream, watch

    async def __aiter__(self) -> AsyncIterator[bytes]:
        num_bytes = 0
        async for piece in self._stream:
            num_bytes += len(piece)
            if num_bytes > self._watch.server.max_answer_bytes:
                self._watch.is_flood = True
                raise httpx2.ReadError("the response is too long")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _LimitedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, watch: "ResponseWatch") -> None:
        super().__init__()
        self._watch = watch

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        is_refusal = response.status_code in (401, 403)
        self._watch.refusal = response.status_code if is_refusal else 0
        response.stream = _LimitedStream(response.stream, self._watch)
        return response


class ResponseWatch:
    """The client, and what went wrong below the SDK."""

    def __init__(self, key: str, server: McpServer) -> None:
        self.server, self._key = server, key
        self.is_flood = False
        self.refusal = 0  # the status of the last response that refused the token

    def client(self) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        seconds = self.server.call_seconds + self.server.start_seconds
        return httpx2.AsyncClient(
            headers=headers, timeout=seconds, transport=_LimitedTransport(self)
        )

    def problem(self) -> Exception | None:
        """What the SDK's error hides; None where it hides nothing."""
        name = self.server.name
        if self.refusal:
            return UserError(
                f"{name} refuses the token ({self.refusal}): set token_variable to the environment "
                "variable that holds it"
            )
        if self.is_flood:
            most = f"{self.server.max_answer_bytes:,}"
            return EnvironmentFailure(f"{name} answered more than {most} bytes", "flood")
        return None
