"""An environment of this library as a server of OpenEnv's websocket messages."""

import asyncio
import contextlib
import hmac
import json
import threading
import traceback
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.request_json import parse_json
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.tool_servers.message_text import messages_text
from agentrl_jax.workers.validation import validate_reset, validate_step

try:
    from websockets.exceptions import ConnectionClosed  # type: ignore[import-not-found]
    from websockets.sync.server import serve  # type: ignore[import-not-found]
except ImportError as error:
    raise UserError(
        "a server of OpenEnv needs the package websockets: pip install 'agentrl_jax[openenv]'"
    ) from error

MAX_SEED = 2**63 - 1
_FORBIDDEN = "the action must be an object with the text message, and metadata at most"


class _Refused(Exception):
    """A request that is answered by an error: its code and its text."""


class _Session:
    """The environment of a connection."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._episode_id: str | None = None
        self._num_steps = 0
        self._is_over = True

    def answer(self, kind: Any, data: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message. Raises `_Refused`."""
        if kind == "reset":
            return {"type": "observation", "data": self._reset(data)}
        if kind == "step":
            return {"type": "observation", "data": self._step(data)}
        if kind == "state":
            state = {"episode_id": self._episode_id, "step_count": self._num_steps}
            return {"type": "state", "data": state}
        raise _Refused("UNKNOWN_TYPE", f"no message has the type {kind!r:.100}")

    def _reset(self, data: dict[str, Any]) -> dict[str, Any]:
        seed, name = data.get("seed"), data.get("episode_id")
        if seed is not None and (type(seed) is not int or not 0 <= seed <= MAX_SEED):
            raise _Refused("VALIDATION_ERROR", f"seed must be a whole number from 0 to {MAX_SEED}")
        if name is not None and (not isinstance(name, str) or len(name) > 255):
            raise _Refused("VALIDATION_ERROR", "episode_id must be a text of up to 255 letters")
        opening, _ = validate_reset(self.env.reset(seed=seed))
        self._episode_id, self._num_steps, self._is_over = name, 0, False
        return _observation(messages_text(opening), None, False, {})

    def _step(self, data: dict[str, Any]) -> dict[str, Any]:
        action = data.get("message")
        if not isinstance(action, str) or not data.keys() <= {"message", "metadata"}:
            raise _Refused("VALIDATION_ERROR", _FORBIDDEN)
        if action.encode(errors="replace").decode() != action:
            raise _Refused("VALIDATION_ERROR", "message must not hold half of a surrogate pair")
        if self._is_over:
            raise _Refused("SESSION_ERROR", "the episode is over: reset it first")
        messages, reward, terminated, truncated, info = validate_step(self.env.step(action))
        self._num_steps += 1
        self._is_over = terminated or truncated
        success = {"success": info["success"]} if info.get("success") is not None else {}
        details = {"truncated": truncated, **success}
        return _observation(messages_text(messages), reward, self._is_over, details)


def _observation(
    text: str, reward: float | None, is_done: bool, metadata: dict[str, Any]
) -> dict[str, Any]:
    observation = {"text": text, "metadata": metadata}
    return {"observation": observation, "reward": reward, "done": is_done}


class OpenEnvServer:
    """Each connection to `/ws` is an environment; `/health`, `/metadata` and `/schema` are GET.

    An action is `{"message": text}`, an observation `{"text": ..., "metadata": {"truncated": ...,
    "success": ...}}`: `success` once the episode is over. What an environment raises, and a call
    that is late, is an EXECUTION_ERROR and ends the connection. Requests of web pages (with an
    Origin) are refused.
    """

    def __init__(
        self,
        environment: str,
        options: Mapping[str, Any],
        key: str,
        limits: ServerLimits,
        max_environments: int = 256,
        seconds: float = 60.0,
        idle_seconds: float = 1800.0,
    ) -> None:
        """Create the server.

        Args:
            environment: a Gymnasium id, with the module that registers it.
            options: of its constructor.
            key: clients send it as a bearer token, or as the first part of the path, since
                OpenEnv's client sends no token: http://host:port/KEY. Empty: none.
            limits: of the bytes and the JSON of a message.
            max_environments: connections at once; a further one is told CAPACITY_REACHED.
            seconds: of a reset or a step.
            idle_seconds: after which a connection without messages is closed.

        Raises:
            UserError: there is no such environment, or it does not take the options.
        """
        make(environment, options).close()
        self._name, self._options, self._key = environment, options, key
        self._limits, self._seconds = limits.check(), seconds
        self._idle_seconds, self._max_environments = idle_seconds, max_environments
        self._room = threading.BoundedSemaphore(max_environments)

    @contextlib.contextmanager
    def listening(self, host: str, port: int) -> Any:
        """Serve in threads while the block runs; yields the URL.

        Raises:
            UserError: the port is taken.
        """
        try:
            server = serve(
                self._connection,
                host,
                port,
                process_request=self._http,
                origins=[None],
                max_size=self._limits.max_request_bytes,
                open_timeout=self._limits.header_timeout,
                compression=None,
                server_header=None,
            )
        except OSError as error:
            raise UserError(f"the port {port} of {host} is not free: {error.strerror}") from error
        with server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://{host}:{server.socket.getsockname()[1]}"
            finally:
                server.shutdown()
                thread.join()

    def _http(self, connection: Any, request: Any) -> Any:
        """The response to a GET; None: a websocket is opened."""
        path = request.path.partition("?")[0]
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        first, _, rest = path.removeprefix("/").partition("/")
        is_allowed = not self._key or hmac.compare_digest(bearer.encode(), self._key.encode())
        if self._key and hmac.compare_digest(first.encode(), self._key.encode()):
            is_allowed, path = True, f"/{rest}"
        if not is_allowed:
            return connection.respond(401, "this is not the key of this server\n")
        if path == "/ws":
            return None
        pages = {
            "/health": {"status": "healthy"},
            "/metadata": {"name": self._name, "description": f"{self._name} of agentrl_jax"},
            "/schema": _SCHEMA,
        }
        if path not in pages:
            return connection.respond(404, "not here\n")
        response = connection.respond(200, json.dumps(pages[path]))
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response

    def _connection(self, connection: Any) -> None:
        """Answer the messages of a connection until it ends."""
        if not self._room.acquire(blocking=False):
            text = f"there are {self._max_environments} environments already"
            connection.send(_error("CAPACITY_REACHED", text))
            return
        thread = ThreadPoolExecutor(1, "environment")
        with self._leaving(thread), contextlib.suppress(ConnectionClosed, FutureTimeout):
            env = thread.submit(make, self._name, self._options).result(self._seconds)
            try:
                self._answer_all(connection, _Session(env), thread)
            finally:
                thread.submit(_close, env)

    @contextlib.contextmanager
    def _leaving(self, thread: ThreadPoolExecutor) -> Any:
        try:
            yield
        finally:
            thread.shutdown(wait=False)
            self._room.release()

    def _answer_all(self, connection: Any, session: _Session, thread: ThreadPoolExecutor) -> None:
        with contextlib.suppress(TimeoutError):  # of an idle connection
            while True:
                message = connection.recv(timeout=self._idle_seconds)
                try:
                    kind, data = self._parsed(message)
                    if kind == "close":
                        return
                    call = thread.submit(session.answer, kind, data)
                    connection.send(json.dumps(_result(call, self._seconds)))
                except _Refused as refusal:
                    connection.send(_error(*refusal.args))
                    if refusal.args[0] == "EXECUTION_ERROR":
                        return

    def _parsed(self, message: Any) -> tuple[Any, dict[str, Any]]:
        """The type and the data of a message."""
        raw = message if isinstance(message, bytes) else message.encode()
        try:
            fields = parse_json(raw, self._limits)
        except APIError as error:
            raise _Refused("INVALID_JSON", str(error)) from error
        if not isinstance(fields, dict):
            raise _Refused("INVALID_JSON", "a message must be a JSON object")
        data = fields.get("data", {})
        if not isinstance(data, dict):
            raise _Refused("VALIDATION_ERROR", "data must be a JSON object")
        return fields.get("type"), data


def _result(call: Any, seconds: float) -> dict[str, Any]:
    """What a call of an environment returns. Raises `_Refused`."""
    try:
        return call.result(seconds)
    except FutureTimeout:
        raise _Refused("EXECUTION_ERROR", f"no answer in {seconds:g} s") from None
    except (EnvironmentFailure, UserError) as error:
        raise _Refused("EXECUTION_ERROR", f"the environment failed: {error}") from error
    except _Refused:
        raise
    except Exception as error:
        traceback.print_exc()
        raise _Refused("EXECUTION_ERROR", f"{type(error).__name__}: {error!s:.300}") from error


def _error(code: str, message: str) -> str:
    return json.dumps({"type": "error", "data": {"message": message, "code": code}})


def _close(env: Environment) -> None:
    try:
        env.close()
    except Exception:  # there is nobody to tell
        traceback.print_exc()


_TEXT = {"type": "string"}
_SCHEMA = {
    "action": {"type": "object", "properties": {"message": _TEXT}, "required": ["message"]},
    "observation": {"type": "object", "properties": {"text": _TEXT}},
    "state": {"type": "object", "properties": {"step_count": {"type": "integer"}}},
}


@contextlib.asynccontextmanager
async def serve_openenv(server: OpenEnvServer, host: str, port: int) -> AsyncIterator[str]:
    """Serve while the block runs; yields the URL. Raises UserError where the port is taken."""
    with contextlib.ExitStack() as stack:
        loop = asyncio.get_running_loop()
        url = await loop.run_in_executor(None, stack.enter_context, server.listening(host, port))
        yield url
