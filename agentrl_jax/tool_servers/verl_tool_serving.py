"""Tools of this library behind VerlTool's `/get_observation` and `/health` (arXiv 2509.01055)."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from agentrl_jax.capture.api_error import APIError
from agentrl_jax.capture.http_server import (
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
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.tool_formats import ToolFormat
from agentrl_jax.tool_servers.bounded_store import BoundedStore
from agentrl_jax.tool_servers.served_tools import TrajectoryTools

MAX_ID = 200  # characters of a trajectory's id
MAX_CALLS = 64  # of an action


@dataclass(frozen=True)
class Action:
    """One action of a batch."""

    trajectory_id: str
    text: str
    is_finish: bool


class VerlToolServer:
    """The routes of a server whose trajectories have tools of their own.

    The calls of an action are read in `tool_format` and run one after the other; an action without
    a call is not valid. A trajectory begins with its first action and ends with `finish`.
    """

    def __init__(
        self,
        make_tools: Callable[[], TrajectoryTools],
        tool_format: ToolFormat,
        api_key: str,
        limits: ServerLimits,
        max_trajectories: int = 1024,
        idle_seconds: float = 600.0,
        max_calls: int = 8,
    ) -> None:
        """Create the server.

        Args:
            make_tools: makes the tools of a trajectory.
            tool_format: how actions write calls.
            api_key: the bearer token of clients; empty: none.
            limits: of connections and requests.
            max_trajectories: that are open at once.
            idle_seconds: after which a trajectory makes room for another.
            max_calls: actions that run at once; others wait.
        """
        self._make_tools, self._format = make_tools, tool_format
        self._key, self._limits = api_key.encode(), limits.check()
        self._trajectories = BoundedStore[TrajectoryTools](
            "trajectory",
            "trajectories",
            max_trajectories,
            idle_seconds,
            lambda trajectory: self._threads.submit(trajectory.close),
        )
        self._max_calls = max_calls
        self._threads = ThreadPoolExecutor(max_calls, "tools")
        self._start = time.monotonic()
        self._num_requests = 0

    def app(self) -> Starlette:
        return make_app(
            [
                Route("/get_observation", with_error_responses(self._observe), methods=["POST"]),
                Route("/health", with_error_responses(self._health), methods=["GET"]),
            ]
        )

    async def _health(self, request: Request) -> Response:
        return JSONResponse(
            {
                "status": "healthy",
                "concurrent_requests": self._num_requests,
                "thread_pool_size": self._max_calls,
                "active_tasks": len(self._trajectories),
                "max_concurrent": self._max_calls,
                "tools": [],
                "uptime_seconds": time.monotonic() - self._start,
            }
        )

    async def _observe(self, request: Request) -> Response:
        check_key(request, self._key)
        start = time.monotonic()
        actions = parse_actions(await json_body(request, self._limits))
        by_trajectory: dict[str, list[int]] = {}
        for i, action in enumerate(actions):
            by_trajectory.setdefault(action.trajectory_id, []).append(i)
        # Before the first action is run, so that a client may send a refused batch again.
        self._check_not_ended(by_trajectory)
        self._open(
            [
                name
                for name, (first, *_) in by_trajectory.items()
                if name not in self._trajectories and not actions[first].is_finish
            ]
        )
        self._check_not_ended(by_trajectory)  # one that was idle may have made room
        self._num_requests += 1
        try:
            answers: list[tuple[Any, bool, bool]] = [("", False, False)] * len(actions)
            results = await asyncio.gather(
                *(
                    self._play(name, [actions[i] for i in places])
                    for name, places in by_trajectory.items()
                )
            )
        finally:
            self._num_requests -= 1
        for places, result in zip(by_trajectory.values(), results):
            for i, answer in zip(places, result):
                answers[i] = answer
        observations, dones, valids = zip(*answers)
        return JSONResponse(
            {
                "observations": observations,
                "dones": dones,
                "valids": valids,
                "processing_time_ms": 1000 * (time.monotonic() - start),
                "queue_time_ms": 0.0,
            }
        )

    async def _play(self, name: str, actions: Sequence[Action]) -> list[tuple[Any, bool, bool]]:
        """The answers to a trajectory's actions, in order."""
        loop, answers = asyncio.get_running_loop(), []
        for action in actions:
            if action.is_finish:
                if name in self._trajectories:
                    async with self._trajectories.use(name):
                        self._trajectories.drop(name)
                answers.append(("", True, True))
                continue
            if name not in self._trajectories:  # only `finish` came before
                self._trajectories.check_not_ended(name)
                self._open([name])
            async with self._trajectories.use(name) as trajectory:
                answers.append(
                    await loop.run_in_executor(self._threads, self._run, trajectory, action.text)
                )
        return answers

    def _check_not_ended(self, names: Iterable[str]) -> None:
        for name in names:
            self._trajectories.check_not_ended(name)

    def _open(self, names: Sequence[str]) -> None:
        """Open new trajectories. Raises APIError where there is no room for all of them."""
        if names:
            self._trajectories.check_room(len(names))
        for name in names:
            self._trajectories.add(name, self._make_tools())

    def _run(self, trajectory: TrajectoryTools, text: str) -> tuple[Any, bool, bool]:
        """Observation, done and valid of an action."""
        tools = {tool.name: tool for tool in trajectory.tools}
        calls = self._format.parse(text, [tool.schema for tool in trajectory.tools]).calls
        if not calls:
            known = ", ".join(tools)
            reason = f"the action calls no tool; there are {known}"
            return {"obs": "", "invalid_reason": reason}, False, False
        texts, images, is_valid = [], [], len(calls) <= MAX_CALLS
        for call in calls[:MAX_CALLS]:
            if call.error or call.name not in tools:
                reason = call.error or f"there is no tool {call.name!r:.80}; there are "
                texts.append(f"Error: {reason}{'' if call.error else ', '.join(tools)}")
                is_valid = False
                continue
            try:
                output = tools[call.name].run(call)
            except (EnvironmentFailure, UserError, MemoryError) as error:
                return {"obs": "", "error": str(error) or type(error).__name__}, True, False
            texts.append(output.text)
            images += [image.url for image in output.images]
        if len(calls) > MAX_CALLS:
            texts.append(f"Error: of {len(calls):,} calls the first {MAX_CALLS} were run")
        observation = "\n".join(texts)
        return ({"obs": observation, "image": images} if images else observation), False, is_valid

    def close(self) -> None:
        """End all trajectories."""
        self._trajectories.drop_all()
        self._threads.shutdown(wait=False)


def parse_actions(fields: Any) -> list[Action]:
    """The actions of a request. Raises APIError where a field is missing or wrong."""
    if not isinstance(fields, dict):
        raise APIError('a request is {"trajectory_ids": [...], "actions": [...]}')
    names: Any = fields.get("trajectory_ids")
    texts: Any = fields.get("actions")
    for field, values in (("trajectory_ids", names), ("actions", texts)):
        if not isinstance(values, list) or not all(isinstance(x, str) for x in values):
            raise APIError(f"{field} must be a list of texts", field)
    if not names or len(names) != len(texts):
        raise APIError("trajectory_ids and actions must have the same length, not 0", "actions")
    if any(not name or len(name) > MAX_ID for name in names):
        raise APIError(f"a trajectory's id has 1 to {MAX_ID} characters", "trajectory_ids")
    extra = fields.get("extra_fields") or [{}] * len(names)
    finish = fields.get("finish") or [False] * len(names)
    for field, values in (("extra_fields", extra), ("finish", finish)):
        if not isinstance(values, list) or len(values) != len(names):
            raise APIError(f"{field} must be a list as long as trajectory_ids", field)
    if not all(isinstance(x, dict) for x in extra) or not all(isinstance(x, bool) for x in finish):
        raise APIError("extra_fields holds objects, finish true and false")
    return [
        Action(name, text, is_finish or bool(more.get("finish")))
        for name, text, is_finish, more in zip(names, texts, finish, extra)
    ]


def serve_verl_tool(
    server: VerlToolServer, host: str, port: int, limits: ServerLimits
) -> AbstractAsyncContextManager[str]:
    """Serve while the block runs; yields the address. Raises UserError where the port is taken."""
    return serve_app(server.app(), host, port, "the tool server", limits)
