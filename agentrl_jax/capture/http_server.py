"""The HTTP side of the capture endpoint: its port, bodies of requests, and errors as responses."""

import asyncio
import contextlib
import functools
import hmac
import socket
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.request_json import parse_json
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.errors import UserError

try:
    import uvicorn
    from starlette.applications import Starlette as Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.responses import StreamingResponse as StreamingResponse
    from starlette.routing import Route as Route
    from starlette.types import ASGIApp

    from agentrl_jax.capture.host_check import HostCheck as HostCheck
    from agentrl_jax.capture.http_protocol import LimitedProtocol
except ImportError as error:
    raise UserError(
        "the capture endpoint needs starlette and uvicorn: pip install 'agentrl_jax[serve]'"
    ) from error

T = TypeVar("T")
LOOP_ITERATIONS = 8  # asyncio takes 3 to open an accepted connection, 1 to close it
Handler = Callable[[Request], Awaitable[Response]]


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Leave signals to the run."""
        yield


def make_uvicorn_server(app: ASGIApp, limits: ServerLimits) -> uvicorn.Server:
    """A server that logs nothing and leaves signals to the run."""
    protocol: Any = functools.partial(LimitedProtocol, limits, Counter[str]())
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        ws="none",
        http=protocol,
        timeout_keep_alive=limits.idle_timeout,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    return _Uvicorn(config)


def url_of(host: str, port: int) -> str:
    """The URL of an address."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def open_listener(host: str, port: int, owner: str) -> socket.socket:
    """A bound socket; `port` 0: any. Raises UserError, which names the owner, if it is taken."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"{owner} cannot listen on {url_of(host, port)} ({error.strerror}): name another "
            "port, or 0"
        ) from error
    return listener


async def serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until cancelled; closes the port and all connections."""
    try:
        await server.serve([listener])
    finally:
        # Closing while a connection is being accepted would lose it (asyncio asserts an open
        # server), so accepting ends first.
        asyncio.get_running_loop().remove_reader(listener)
        await _run_iterations()
        for socket_server in getattr(server, "servers", ()):  # set once it has started
            socket_server.close()
        listener.close()
        for connection in list(server.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await _run_iterations()


def make_app(routes: Sequence[Route]) -> Starlette:
    """The application of some routes; other paths and methods are errors in the API's form."""
    app = Starlette(routes=routes)
    app.add_exception_handler(404, not_found)
    app.add_exception_handler(405, not_found)
    return app


@contextlib.asynccontextmanager
async def serve_app(
    app: ASGIApp, host: str, port: int, owner: str, limits: ServerLimits
) -> AsyncIterator[str]:
    """Serve an application while the block runs, to requests whose Host names it; yields the URL.

    Raises:
        UserError: the host is empty, or the port is taken.
    """
    if not host.strip():
        raise UserError(f"{owner} needs a host: 127.0.0.1 for this machine alone")
    listener = open_listener(host, port, owner)
    checked = HostCheck(app, (host, *limits.allowed_hosts))
    server = make_uvicorn_server(checked, limits)
    task = asyncio.ensure_future(serve(server, listener))
    try:
        while not server.started and not task.done():  # before that connections are refused
            await asyncio.sleep(0.001)
        yield url_of(host, listener.getsockname()[1])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _run_iterations() -> None:
    """Let accepted connections open, and aborted ones close, however slow the event loop is."""
    for _ in range(LOOP_ITERATIONS):
        await asyncio.sleep(0)


def with_error_responses(handler: Handler) -> Handler:
    """The handler, with its exceptions as error responses."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except APIError as error:
            return JSONResponse(error.body(), error.status, error.headers())
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            traceback.print_exc()
            return JSONResponse(
                APIError(f"{type(error).__name__}: {error}", status=500).body(), 500
            )

    return handle


def bearer_token(request: Request) -> bytes:
    """The key of the request's `Authorization` header."""
    return request.headers.get("authorization", "").removeprefix("Bearer ").strip().encode()


def check_key(request: Request, key: bytes) -> None:
    """Raises APIError where a request has not the server's key; an empty key admits all."""
    if key and not hmac.compare_digest(bearer_token(request), key):
        raise APIError("this is not the key of this server", code="invalid_api_key", status=401)


async def not_found(request: Request, error: Exception) -> Response:
    """The response to a path or a method that has no route."""
    status = getattr(error, "status_code", 404)
    return JSONResponse(
        APIError(
            f"{request.method} {request.url.path:.200} is not served here", status=status
        ).body(),
        status,
    )


async def read_body(request: Request, limits: ServerLimits) -> bytes:
    """The request's body. Raises APIError if it is too large or too slow."""
    announced = request.headers.get("content-length", "")
    too_large = APIError(f"a request may have {limits.max_request_bytes:,} bytes", status=413)
    if announced.isdecimal() and int(announced) > limits.max_request_bytes:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(limits.body_timeout):
            async for piece in request.stream():
                data += piece
                if len(data) > limits.max_request_bytes:
                    raise too_large
    except TimeoutError:
        raise APIError(
            f"the request did not arrive within {limits.body_timeout:g} s", status=408
        ) from None
    return bytes(data)


async def json_body(request: Request, limits: ServerLimits) -> Any:
    """The JSON of a small request, None for an empty body. Raises APIError if it is invalid."""
    data = await read_body(request, limits)
    return parse_json(data, limits) if data else None


async def gather_while_connected(request: Request, tasks: "list[asyncio.Task[T]]") -> "list[T]":
    """All results; if a task fails, the client leaves or its episode ends, all are cancelled.

    Raises:
        ClientDisconnect: the client left.
        APIError: the episode ended.
        Exception: what a task raised.
    """

    async def wait_for_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    disconnect = asyncio.ensure_future(wait_for_disconnect())
    results = asyncio.ensure_future(asyncio.gather(*tasks))
    try:
        await asyncio.wait([results, disconnect], return_when=asyncio.FIRST_COMPLETED)
        if not results.done():
            disconnect.result()
        return results.result()
    except asyncio.CancelledError:
        if not results.done() or not any(task.cancelled() for task in tasks):
            raise
        raise APIError("the episode is over", code="episode_over", status=410) from None
    finally:
        for future in (disconnect, results, *tasks):
            future.cancel()
        await asyncio.gather(disconnect, results, return_exceptions=True)
