"""`HostCheck`: requests whose Host header does not name the server are refused.

A web page may have its own name resolve to this machine (DNS rebinding), and its requests then
arrive here with that name.
"""

import ipaddress
import re
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agentrl_jax.capture.api_error import APIError


class HostCheck:
    """An application for requests to these names, and to the address that they have reached."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, {normalize_host(name) for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            name = normalize_host(Headers(scope=scope).get("host", ""))
            if name not in self._names | _names_of_address(scope["server"]):
                error = APIError(
                    f"the host {name!r:.80} is not served here: name it in allowed_hosts",
                    status=421,
                )
                app = JSONResponse(error.body(), error.status)
        await app(scope, receive, send)


def normalize_host(header: str) -> str:
    """The name or address of a Host header: "[::1]:80" -> "::1", "Localhost:80" -> "localhost".

    A header that ends in no port remains as it is: "127.0.0.1:x", "[::1]x".
    """
    name = header.strip().lower()
    if name.startswith("["):
        address, _, rest = name[1:].partition("]")
        return address if _is_port(rest) else name
    if name.count(":") == 1 and _is_port(":" + name.partition(":")[2]):
        name = name.partition(":")[0]
    return name.removesuffix(".")


def _is_port(text: str) -> bool:
    """Whether a text is ":80", ":" or nothing."""
    return re.fullmatch(r"(:[0-9]*)?", text) is not None


def _names_of_address(server: tuple[str, int | None] | None) -> set[str]:
    if server is None:
        return set()
    try:
        is_loopback = ipaddress.ip_address(server[0]).is_loopback
    except ValueError:
        return set()
    return {server[0], "localhost"} if is_loopback else {server[0]}
