"""`CaptureServer`: the episodes of agent programs behind OpenAI's routes, on the event loop that it was started on."""

import asyncio
import contextlib
import hmac
import json
import secrets
import socket
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from agentrl_jax.capture.answers import Chat, Form, Text, completion
from agentrl_jax.capture.session import Session
from agentrl_jax.capture.stream import Stream
from agentrl_jax.capture.wire import Asked, Refused, asked, asked_text
from agentrl_jax.errors import EnvironmentFailure, UserError

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise UserError("the capture endpoint needs starlette and uvicorn: pip install 'agentrl_jax[serve]'") from error

T = TypeVar("T")
LARGEST = 16 * 2**20  # bytes of a request
SLOW = 30.0  # seconds that a request may take to arrive
PATIENCE = 30.0  # seconds that a program is kept waiting which asks for an episode when there is none
CONNECTIONS = 4096
Handler = Callable[[Request], Awaitable[Response]]


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Signals are the run's."""
        yield


class CaptureServer:
    """Sessions come and go; programs find theirs by the path `/episodes/ID` or by their key alone."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, token: str = "") -> None:
        """`token` may ask for episodes and act for all; port 0 and no token: any."""
        self.token = token or secrets.token_urlsafe(24)
        self._host, self._port = host, port
        self._sessions: dict[str, Session] = {}
        self._offers: deque[Session] = deque()
        self._offered = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self.everyones: Session | None = None  # is asked by whoever has the token and names no episode; it never ends
        self.claims = 0  # episodes that programs have asked for and been given
        self._given: dict[str, list[Session]] = {self.token: []}  # by who asked

    @property
    def url(self) -> str:
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self._port}"

    def url_of(self, session: Session) -> str:
        """Where the session's rewards are posted; a client's `base_url` has /v1 behind it."""
        return f"{self.url}/episodes/{session.identity}"

    async def start(self) -> None:
        """Raises UserError where the port is taken."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((self._host, self._port))
        except OSError as error:
            listening.close()
            raise UserError(f"the capture endpoint cannot listen on {self.url} ({error.strerror}): name another port, or 0") from error
        self._port = listening.getsockname()[1]
        config = uvicorn.Config(
            self._app(), log_config=None, log_level="critical", access_log=False, lifespan="off", ws="none", http="h11",
            timeout_keep_alive=60, limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=1, server_header=False,
        )  # fmt: skip
        self._serving = asyncio.ensure_future(self._serve(_Uvicorn(config), listening))

    async def _serve(self, server: uvicorn.Server, listening: socket.socket) -> None:
        try:
            await server.serve([listening])
        finally:
            for one in getattr(server, "servers", ()):
                one.close()
            listening.close()
            await asyncio.sleep(0.05)  # for connections that were just being accepted
            for connection in list(server.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(0.05)  # for their sockets to be closed

    async def stop(self) -> None:
        """Close every session and the port; cancelling all tasks of the loop does the latter too."""
        for session in list(self._sessions.values()):
            self.close(session)
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    def open(self, session: Session) -> Session:
        self._sessions[session.identity] = session
        return session

    def offer(self, session: Session) -> None:
        """Let the next program that asks for an episode have this one."""
        self._offers.append(session)
        self._offered.set()

    def admit(self) -> str:
        """A token for one more program that may ask for episodes."""
        token = secrets.token_urlsafe(24)
        self._given[token] = []
        return token

    def dismiss(self, token: str, why: EnvironmentFailure) -> None:
        """The program is gone: what was given to it fails."""
        for session in self._given.pop(token):
            session.fail(why)

    def close(self, session: Session) -> None:
        """Its calls end, and whoever asks for more hears that the episode is over."""
        self._sessions.pop(session.identity, None)
        with contextlib.suppress(ValueError):
            self._offers.remove(session)
        for given in self._given.values():
            if session in given:
                given.remove(session)
        session.close()

    def _app(self) -> Starlette:
        routes = [Route("/episodes", self._answering(self._claim), methods=["POST"])]
        for prefix in ("", "/episodes/{episode}"):
            routes += [
                Route(f"{prefix}/v1/chat/completions", self._completing(asked, Chat()), methods=["POST"]),
                Route(f"{prefix}/v1/completions", self._completing(asked_text, Text()), methods=["POST"]),
                Route(f"{prefix}/v1/models", self._answering(self._models), methods=["GET"]),
                Route(f"{prefix}/reward", self._answering(self._reward), methods=["POST"]),
                Route(f"{prefix}/end", self._answering(self._end), methods=["POST"]),
            ]
        app = Starlette(routes=routes)
        app.add_exception_handler(404, _nowhere)
        app.add_exception_handler(405, _nowhere)
        return app

    @staticmethod
    def _answering(handler: Handler) -> Handler:
        """The handler, with what it refuses as an answer; it is given up where the client has left."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except Refused as refused:
                return JSONResponse(refused.body(), refused.status)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:
                traceback.print_exc()
                return JSONResponse(Refused(f"{type(error).__name__}: {error}", status=500).body(), 500)

        return answer

    def _session(self, request: Request) -> Session:
        """Whose request this is. Raises Refused where its key is not that of an episode, or not of the one that the path names."""
        key = _key(request)
        if self.everyones is not None and "episode" not in request.path_params and hmac.compare_digest(key, self.token.encode()):
            return self.everyones
        identity = request.path_params.get("episode") or key.decode(errors="replace").rpartition("-")[0].removeprefix("sk-")
        session = self._sessions.get(identity)
        if session is not None and any(hmac.compare_digest(key, one.encode()) for one in (session.secret, self.token)):
            return session
        if session is None and ("episode" in request.path_params and hmac.compare_digest(key, self.token.encode())):
            raise Refused("there is no such episode, or it is over", code="episode_over", status=410)
        raise Refused("this is not the key of an episode that is going on", code="invalid_api_key", status=401)

    def _completing(self, read: Callable[[Any], Asked], form: Form) -> Handler:
        async def complete(request: Request) -> Response:
            session = self._session(request)
            wanted, now = read(await _body(request)), int(time.time())
            if wanted.stream:
                stream = Stream(session, wanted, now, form)
                return StreamingResponse(stream.events(), media_type="text/event-stream", headers={"cache-control": "no-cache"})
            identity, tasks = session.start(wanted)
            choices = await _while_connected(request, tasks)
            return JSONResponse(completion(form, wanted, identity, now, choices))

        return self._answering(complete)

    async def _models(self, request: Request) -> Response:
        names = self._session(request).models
        return JSONResponse(
            {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "agentrl_jax"} for name in names]}
        )

    def _trained(self, request: Request) -> Session:
        """Whose request this is, where that can be rewarded and can end."""
        session = self._session(request)
        if session is self.everyones:
            raise Refused("nothing is trained here: there is no episode to reward or to end", status=404)
        return session

    async def _reward(self, request: Request) -> Response:
        session = self._trained(request)
        session.reward(await _body(request))
        return JSONResponse({"posted": True})

    async def _end(self, request: Request) -> Response:
        session = self._trained(request)
        session.touch()
        session.end()
        return JSONResponse({"ended": True})

    async def _claim(self, request: Request) -> Response:
        """An episode for a program that asks for one; 204 where there is none for now."""
        token = next((token for token in self._given if hmac.compare_digest(_key(request), token.encode())), None)
        if token is None:
            raise Refused("this is not the server's token", code="invalid_api_key", status=401)
        await _body(request, empty=True)
        until = time.monotonic() + PATIENCE
        while not self._offers:
            left = until - time.monotonic()
            if left <= 0:
                return Response(status_code=204)
            self._offered.clear()
            with contextlib.suppress(TimeoutError):
                await _while_connected(request, [asyncio.ensure_future(asyncio.wait_for(self._offered.wait(), left))])
        session = self._offers.popleft()
        session.touch()
        self.claims += 1
        self._given[token].append(session)
        return JSONResponse({**session.described, "url": self.url_of(session), "api_key": session.secret})


def _key(request: Request) -> bytes:
    return request.headers.get("authorization", "").removeprefix("Bearer ").strip().encode()


async def _nowhere(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return JSONResponse(Refused(f"{request.method} {request.url.path:.200} is not served here", status=status).body(), status)


async def _body(request: Request, empty: bool = False) -> Any:
    """The request's JSON. Raises Refused where it is none, too large, or too slow."""
    data = bytearray()
    try:
        async with asyncio.timeout(SLOW):
            async for piece in request.stream():
                data += piece
                if len(data) > LARGEST:
                    raise Refused(f"a request may have {LARGEST:,} bytes", status=413)
    except TimeoutError:
        raise Refused(f"the request did not arrive within {SLOW:g} s", status=408) from None
    if empty and not data:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}") from None


async def _while_connected(request: Request, tasks: "list[asyncio.Task[T]]") -> "list[T]":
    """All results. Where one fails, the client leaves or its episode ends, the others are given up.

    Raises ClientDisconnect, Refused, or what a task raised.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect

    leaving = asyncio.ensure_future(gone())
    everything = asyncio.ensure_future(asyncio.gather(*tasks))
    try:
        await asyncio.wait([everything, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not everything.done():
            leaving.result()
        return everything.result()
    except asyncio.CancelledError:
        if not everything.done() or not any(task.cancelled() for task in tasks):
            raise
        raise Refused("the episode is over", code="episode_over", status=410) from None
    finally:
        for one in (leaving, everything, *tasks):
            one.cancel()
        await asyncio.gather(leaving, everything, return_exceptions=True)
