"""`JsonClient`: JSON over HTTP to a server, with bounds on time and size, and failures by cause."""

import functools
import json
import math
import time
from dataclasses import dataclass
from typing import Any

from agentrl_jax.errors import DeadlineExceeded, EnvironmentFailure, UserError
from agentrl_jax.tool_servers.access import check_url, key_of

_REFUSALS = (401, 403)
_UNKNOWN = (404, 410)


@dataclass(frozen=True)
class JsonClient:
    """A client of one server. A request is sent once: it may change what the server holds.

    What the server does wrong is a failure of the environment: it is not there or breaks off
    (`died`), it knows the object of the request no longer (`lost`), it is late (`deadline`), it
    answers too much (`flood`), no JSON (`nonsense`) or an error (`raised`).
    """

    url: str
    key_variable: str = ""  # the environment variable that holds the bearer token; empty: none
    seconds: float = 30.0  # of a request
    max_bytes: int = 2**24  # of a response

    def check(self) -> "JsonClient":
        """This client. Raises UserError where the address or a limit is none."""
        check_url(self.url, "a server of tools or environments")
        if not 0 < self.seconds < math.inf or self.max_bytes < 1:
            raise UserError(f"a request to {self.url} needs positive limits of time and bytes")
        return self

    def post(self, path: str, body: Any) -> Any:
        """The JSON of the response to a body; see the class for what is raised."""
        return self._request("POST", path, content=json.dumps(body))

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of the response to a query; see the class for what is raised."""
        return self._request("GET", path, params=parameters)

    def post_text(self, path: str, body: Any) -> str:
        """The text of the response to a body, errors of the request (400 and on) included; see the
        class for what else is raised.
        """
        status, data = self._fetch("POST", path, content=json.dumps(body))
        if status >= 500 or status in _REFUSALS:
            self._value(f"{self.url.rstrip('/')}{path}", status, data)
        return data.decode(errors="replace")

    def _request(self, method: str, path: str, **fields: Any) -> Any:
        status, data = self._fetch(method, path, **fields)
        return self._value(f"{self.url.rstrip('/')}{path}", status, data)

    def _http_client(self) -> Any:
        """The HTTP library's client: one of all servers."""
        return _http()[1]

    def _fetch(self, method: str, path: str, **fields: Any) -> tuple[int, bytes]:
        """The status and body of a response."""
        httpx2, client = _http()[0], self._http_client()
        key = key_of(self.key_variable, self.url)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        target, deadline = f"{self.url.rstrip('/')}{path}", time.monotonic() + self.seconds
        data = bytearray()
        try:
            with client.stream(
                method, target, headers=headers, timeout=self.seconds, **fields
            ) as reply:
                for piece in reply.iter_bytes():
                    data += piece
                    if len(data) > self.max_bytes:
                        raise EnvironmentFailure(
                            f"{target} answered more than {self.max_bytes:,} bytes", "flood"
                        )
                    if time.monotonic() > deadline:
                        raise DeadlineExceeded(f"{target} was not done in {self.seconds:g} s")
        except httpx2.TimeoutException as error:
            raise DeadlineExceeded(f"no answer from {target} in {self.seconds:g} s") from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise UserError(f"{self.url!r} is no address of a server: {error}") from error
        except httpx2.RequestError as error:
            text = f"{type(error).__name__}: {error}"
            raise EnvironmentFailure(f"{target} cannot be reached: {text:.300}", "died") from error
        return reply.status_code, bytes(data)

    def _value(self, target: str, status: int, data: bytes) -> Any:
        excerpt = data[:300].decode(errors="replace")
        if status in _REFUSALS:
            raise UserError(
                f"{target} refuses the key ({status}): name the environment variable that holds it"
            )
        if not 200 <= status < 300:
            kind = "lost" if status in _UNKNOWN else "raised"
            raise EnvironmentFailure(f"{target} answered {status}: {excerpt}", kind)
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise EnvironmentFailure(
                f"the answer of {target} is no JSON: {excerpt}", "nonsense"
            ) from None


@dataclass(frozen=True)
class SessionClient(JsonClient):
    """A `JsonClient` whose requests share cookies with each other and with no other client's."""

    def _http_client(self) -> Any:
        return self._own_client

    @functools.cached_property
    def _own_client(self) -> Any:
        return _http()[0].Client()

    def forget(self) -> None:
        """Forget the cookies: the next request begins a session."""
        self._own_client.cookies.clear()

    def close(self) -> None:
        """Close the connections and forget the cookies; a later request begins anew."""
        client = self.__dict__.pop("_own_client", None)
        if client is not None:
            client.close()


@functools.cache
def _http() -> tuple[Any, Any]:
    """The HTTP library, imported where it is used, and the one client of this process."""
    import atexit

    import httpx2

    client = httpx2.Client(limits=httpx2.Limits(max_connections=1024))
    atexit.register(client.close)
    return httpx2, client
