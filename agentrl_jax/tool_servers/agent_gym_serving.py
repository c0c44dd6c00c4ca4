"""An environment of this library behind AgentGym's HTTP verbs (arXiv 2406.04151)."""

import asyncio
import secrets
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.http_server import (
    Handler,
    JSONResponse,
    Request,
    Response,
    Route,
    Starlette,
    check_key,
    json_body,
    make_app,
    serve_app,
    with_error_responses,
)
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.environment import Environment, make
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.tool_servers.bounded_store import BoundedStore
from agentrl_jax.tool_servers.message_text import messages_text
from agentrl_jax.workers.validation import validate_reset, validate_step

T = TypeVar("T")
MAX_SEED = 2**63 - 1


@dataclass
class _Episode:
    """An environment and what `/observation` repeats."""

    env: Environment
    text: str = ""
    is_over: bool = True


class AgentGymServer:
    """The verbs `/create`, `/step`, `/reset`, `/observation` and `/close`.

    `data_idx` is the seed of an episode. An observation is the text of its messages. What an
    environment raises ends it, and is an error of the server, never a reward.
    """

    def __init__(
        self,
        environment: str,
        options: Mapping[str, Any],
        api_key: str,
        limits: ServerLimits,
        max_environments: int = 256,
        idle_seconds: float = 1800.0,
        max_calls: int = 8,
    ) -> None:
        """Create the server.

        Args:
            environment: a Gymnasium id, with the module that registers it.
            options: of its constructor.
            api_key: the bearer token of clients; empty: none.
            limits: of connections and requests.
            max_environments: that are open at once.
            idle_seconds: after which one makes room for another.
            max_calls: requests that run at once; others wait.

        Raises:
            UserError: there is no such environment, or it does not take the options.
        """
        make(environment, options).close()
        self._name, self._options = environment, options
        self._key, self._limits = api_key.encode(), limits.check()
        self._threads = ThreadPoolExecutor(max_calls, "environments")
        self._episodes = BoundedStore[_Episode](
            "environment",
            "environments",
            max_environments,
            idle_seconds,
            lambda episode: self._threads.submit(_close, episode.env),
        )

    def app(self) -> Starlette:
        posts = {
            "/create": self._create,
            "/step": self._step,
            "/reset": self._reset,
            "/close": self._close,
        }
        routes = [
            *(Route(path, self._guarded(verb), methods=["POST"]) for path, verb in posts.items()),
            Route("/observation", self._guarded(self._observation), methods=["GET"]),
            Route("/", with_error_responses(self._about), methods=["GET"]),
        ]
        return make_app(routes)

    def _guarded(self, verb: Callable[[Request, dict[str, Any]], Any]) -> Handler:
        async def handle(request: Request) -> Response:
            check_key(request, self._key)
            fields = await json_body(request, self._limits)
            if fields is not None and not isinstance(fields, dict):
                raise APIError("the body must be a JSON object")
            return JSONResponse(await verb(request, fields or {}))

        return with_error_responses(handle)

    async def _about(self, request: Request) -> Response:
        return JSONResponse(f"This is environment {self._name}.")

    async def _create(self, request: Request, fields: dict[str, Any]) -> Any:
        seed = _seed(fields, 0)
        self._episodes.check_room()
        # Not counted from 0: an id of a server that was here before must not name another episode.
        while (identity := secrets.randbits(53)) in self._episodes:
            pass
        self._episodes.add(identity, _Episode(make(self._name, self._options)))
        return {"id": identity, **await self._start(identity, seed)}

    async def _reset(self, request: Request, fields: dict[str, Any]) -> Any:
        return await self._start(_identity(fields.get("id")), _seed(fields, None))

    async def _start(self, identity: int, seed: int) -> dict[str, Any]:
        async with self._episodes.use(identity) as episode:
            opening, _ = await self._run(
                identity, lambda: validate_reset(episode.env.reset(seed=seed))
            )
            episode.text, episode.is_over = messages_text(opening), False
            return {"observation": episode.text, "reward": 0.0, "done": False}

    async def _step(self, request: Request, fields: dict[str, Any]) -> Any:
        action = fields.get("action")
        if not isinstance(action, str):
            raise APIError("action must be a text", "action")
        if action.encode(errors="replace").decode() != action:
            raise APIError("action must not hold half of a surrogate pair", "action")
        identity = _identity(fields.get("id"))
        async with self._episodes.use(identity) as episode:
            if episode.is_over:
                raise APIError("the episode is over: reset it first", status=409)
            observation, reward, terminated, truncated, info = await self._run(
                identity, lambda: validate_step(episode.env.step(action))
            )
            episode.text, episode.is_over = messages_text(observation), terminated or truncated
            extra = {"success": info["success"]} if info.get("success") is not None else {}
            done = {"done": episode.is_over, "truncated": truncated}
            return {"observation": episode.text, "reward": reward, **done, "info": extra}

    async def _observation(self, request: Request, fields: dict[str, Any]) -> Any:
        text = request.query_params.get("id", "")
        identity = int(text) if text.isdecimal() and len(text) < 20 else None
        async with self._episodes.use(_identity(identity)) as episode:
            return episode.text

    async def _close(self, request: Request, fields: dict[str, Any]) -> Any:
        identity = _identity(fields.get("id"))
        async with self._episodes.use(identity):
            self._episodes.drop(identity)
        return {"closed": True}

    async def _run(self, identity: int, call: Callable[[], T]) -> T:
        """The result of a call in a thread; the environment ends where it raises."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (EnvironmentFailure, UserError) as error:
            self._episodes.drop(identity)
            raise APIError(f"the environment failed: {error}", status=500) from error
        except Exception:
            self._episodes.drop(identity)
            raise

    def close(self) -> None:
        """Close all environments."""
        self._episodes.drop_all()
        self._threads.shutdown(wait=False)


def _close(env: Environment) -> None:
    try:
        env.close()
    except Exception:  # there is nobody to tell
        traceback.print_exc()


def _identity(value: Any) -> int:
    if type(value) is not int:
        raise APIError("id must be the number that /create returned", "id")
    return value


def _seed(fields: dict[str, Any], default: int | None) -> int:
    value = fields.get("data_idx", default)
    if type(value) is not int or not 0 <= value <= MAX_SEED:
        raise APIError(f"data_idx must be a whole number from 0 to {MAX_SEED}", "data_idx")
    return value


def serve_agent_gym(
    server: AgentGymServer, host: str, port: int, limits: ServerLimits
) -> AbstractAsyncContextManager[str]:
    """Serve while the block runs; yields the address. Raises UserError where the port is taken."""
    return serve_app(server.app(), host, port, "the environment server", limits)
