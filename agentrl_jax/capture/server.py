"""`CaptureServer`: serves OpenAI's routes to agent programs, on one event loop."""

import asyncio
import contextlib
import hmac
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.completion_starter import CompletionStarter
from agentrl_jax.capture.http_server import (
    Handler,
    HostCheck,
    JSONResponse,
    Request,
    Response,
    Route,
    Starlette,
    StreamingResponse,
    bearer_token,
    gather_while_connected,
    json_body,
    make_app,
    make_uvicorn_server,
    open_listener,
    read_body,
    serve,
    url_of,
    with_error_responses,
)
from agentrl_jax.capture.requests import CompletionRequest, parse_chat_request, parse_text_request
from agentrl_jax.capture.responses import ChatFormat, ResponseFormat, TextFormat
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.capture.session import CaptureSession
from agentrl_jax.errors import EnvironmentFailure, UserError

CLAIM_TIMEOUT = 30.0  # seconds that a request for an episode waits if there is none


class CaptureServer:
    """The open sessions; a program addresses its own by the path `/episodes/ID` or by its key."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        limits: ServerLimits = ServerLimits(),  # noqa: B008  it is not changed
    ) -> None:
        """Create the server; `start` opens the port.

        Args:
            host: the address to listen on.
            port: 0 for any free port.
            token: its holder may ask for episodes and act for all; empty: a random one.
            limits: what it accepts.

        Raises:
            UserError: the host is empty, or a limit is out of range.
        """
        if not host.strip():
            raise UserError(
                "the capture endpoint needs a host: 127.0.0.1 for this machine alone, or the "
                "address at which others reach it"
            )
        self.token = token or secrets.token_urlsafe(24)
        self._host, self._port, self._limits = host, port, limits.check()
        self._starter = CompletionStarter(limits)
        self._sessions: dict[str, CaptureSession] = {}
        self._unclaimed: deque[CaptureSession] = deque()
        self._offer_event = asyncio.Event()
        self._serve_task: asyncio.Task[None] | None = None
        # Serves requests with the token that name no episode; it never ends.
        self.default_session: CaptureSession | None = None
        self.num_claims = 0  # episodes that programs have asked for and got
        self._sessions_by_token: dict[str, list[CaptureSession]] = {self.token: []}  # claimed ones

    @property
    def url(self) -> str:
        return url_of(self._host, self._port)

    def url_of(self, session: CaptureSession) -> str:
        """The URL to post rewards to; a client's `base_url` is this and /v1."""
        return f"{self.url}/episodes/{session.episode_id}"

    async def start(self) -> None:
        """Open the port. Raises UserError if it is taken."""
        listener = open_listener(self._host, self._port, "the capture endpoint")
        self._port = listener.getsockname()[1]
        self._serve_task = asyncio.ensure_future(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        app = HostCheck(self._app(), (self._host, *self._limits.allowed_hosts))
        try:
            await serve(make_uvicorn_server(app, self._limits), listener)
        finally:
            self._starter.close()

    async def stop(self) -> None:
        """Close all sessions and the port; cancelling all tasks of the loop closes the port too."""
        for session in list(self._sessions.values()):
            self.close(session)
        if self._serve_task is not None:
            self._serve_task.cancel()
            await asyncio.gather(self._serve_task, return_exceptions=True)

    def open(self, session: CaptureSession) -> CaptureSession:
        """Serve a session from now on."""
        self._sessions[session.episode_id] = session
        return session

    def offer(self, session: CaptureSession) -> None:
        """Give this episode to the next program that asks for one."""
        self._unclaimed.append(session)
        self._offer_event.set()

    def issue_token(self) -> str:
        """A new token with which a program may ask for episodes."""
        token = secrets.token_urlsafe(24)
        self._sessions_by_token[token] = []
        return token

    def revoke_token(self, token: str, failure: EnvironmentFailure) -> None:
        """The program with this token has exited: the episodes that it got fail."""
        for session in self._sessions_by_token.pop(token):
            session.fail(failure)

    def close(self, session: CaptureSession) -> None:
        """End a session and its calls; later requests get "the episode is over"."""
        self._sessions.pop(session.episode_id, None)
        with contextlib.suppress(ValueError):
            self._unclaimed.remove(session)
        for claimed in self._sessions_by_token.values():
            if session in claimed:
                claimed.remove(session)
        session.close()

    def _app(self) -> Starlette:
        routes = [Route("/episodes", with_error_responses(self._claim), methods=["POST"])]
        for prefix in ("", "/episodes/{episode}"):
            routes += [
                Route(
                    f"{prefix}/v1/chat/completions",
                    self._completion_handler(parse_chat_request, ChatFormat()),
                    methods=["POST"],
                ),
                Route(
                    f"{prefix}/v1/completions",
                    self._completion_handler(parse_text_request, TextFormat()),
                    methods=["POST"],
                ),
                Route(f"{prefix}/v1/models", with_error_responses(self._models), methods=["GET"]),
                Route(f"{prefix}/reward", with_error_responses(self._reward), methods=["POST"]),
                Route(f"{prefix}/end", with_error_responses(self._end), methods=["POST"]),
            ]
        return make_app(routes)

    def _session(self, request: Request) -> CaptureSession:
        """The session of a request, by its path and key.

        Raises:
            APIError: its key is not that of an open episode, or not of the one in the path.
        """
        key = bearer_token(request)
        if (
            self.default_session is not None
            and "episode" not in request.path_params
            and hmac.compare_digest(key, self.token.encode())
        ):
            return self.default_session
        id_in_key = key.decode(errors="replace").rpartition("-")[0].removeprefix("sk-")
        session = self._sessions.get(request.path_params.get("episode") or id_in_key)
        is_token = hmac.compare_digest(key, self.token.encode())
        if session is not None and (hmac.compare_digest(key, session.secret.encode()) or is_token):
            return session
        if session is None and "episode" in request.path_params and is_token:
            raise APIError(
                "there is no such episode, or it is over", code="episode_over", status=410
            )
        raise APIError(
            "this is not the key of an episode that is going on", code="invalid_api_key", status=401
        )

    def _completion_handler(
        self, parse: Callable[[Any], CompletionRequest], response_format: ResponseFormat
    ) -> Handler:
        async def complete(request: Request) -> Response:
            session = self._session(request)
            data = await read_body(request, self._limits)
            start = asyncio.ensure_future(
                self._starter.start(session, data, parse, response_format)
            )
            session.cancel_at_end(start)
            (completion,) = await gather_while_connected(request, [start])
            if completion.is_streamed:
                return StreamingResponse(
                    completion.events(),
                    media_type="text/event-stream",
                    headers={"cache-control": "no-cache"},
                )
            choices = await gather_while_connected(request, completion.tasks)
            return JSONResponse(completion.full_response(choices))

        return with_error_responses(complete)

    async def _models(self, request: Request) -> Response:
        names = self._session(request).models
        return JSONResponse(
            {
                "object": "list",
                "data": [
                    {"id": name, "object": "model", "created": 0, "owned_by": "agentrl_jax"}
                    for name in names
                ],
            }
        )

    def _trainable_session(self, request: Request) -> CaptureSession:
        """The session of a request; only one of an episode can be rewarded and ended."""
        session = self._session(request)
        if session is self.default_session:
            raise APIError(
                "nothing is trained here: there is no episode to reward or to end", status=404
            )
        return session

    async def _reward(self, request: Request) -> Response:
        session = self._trainable_session(request)
        session.add_reward(await json_body(request, self._limits))
        return JSONResponse({"posted": True})

    async def _end(self, request: Request) -> Response:
        session = self._trainable_session(request)
        session.touch()
        session.end()
        return JSONResponse({"ended": True})

    async def _claim(self, request: Request) -> Response:
        """An episode for a program that asks for one; 204 if there is none for now."""
        token = next(
            (
                token
                for token in self._sessions_by_token
                if hmac.compare_digest(bearer_token(request), token.encode())
            ),
            None,
        )
        if token is None:
            raise APIError("this is not the server's token", code="invalid_api_key", status=401)
        await json_body(request, self._limits)
        deadline = time.monotonic() + CLAIM_TIMEOUT
        while not self._unclaimed:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                return Response(status_code=204)
            self._offer_event.clear()
            offer = asyncio.ensure_future(self._wait_for_offer(seconds_left))
            await gather_while_connected(request, [offer])
        session = self._unclaimed.popleft()
        session.touch()
        self.num_claims += 1
        self._sessions_by_token[token].append(session)
        return JSONResponse(
            {**session.task_description, "url": self.url_of(session), "api_key": session.secret}
        )

    async def _wait_for_offer(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._offer_event.wait()
