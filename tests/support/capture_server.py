"""Tests of the capture endpoint: engines, and a capture server on an event loop in a thread."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import httpx2
import jax
import numpy as np
from support.fake_engines import FakeEngine
from support.fixtures import tiny_policy

from agentrl_jax.capture.agent_table import AgentTable
from agentrl_jax.capture.server import CaptureServer
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.capture.session import CaptureSession
from agentrl_jax.context import FullHistory
from agentrl_jax.engine import Engine, GenerationFuture
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.messages import assistant
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.renderer import ChatRenderer
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.trajectories import Call, RandomKey, Sampling
from agentrl_jax.workers.pool import Task

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>tools\\n' + tools | tojson + '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
TOKENIZER = byte_tokenizer(chat=True)
TOKENIZER.chat_template = TEMPLATE
RENDERER = ChatRenderer(TOKENIZER)
AGENT = Agent("policy", RENDERER, FullHistory(), Sampling(budget=12))
TASK = Task("tests/Nothing-v0", 7, {"size": 3}, group=4)


def decode_text(ids: Sequence[int] | np.ndarray) -> str:
    return str(TOKENIZER.decode(list(ids)))


def local_engine(**fields: Any) -> LocalEngine:
    policy = tiny_policy(len(TOKENIZER))
    config = EngineConfig(
        **{
            "rows": 4,
            "positions": 256,
            "prefill_chunk": 16,
            "min_decode_steps": 4,
            "max_decode_steps": 4,
            "batching_delay": 0.0,
            **fields,
        }
    )
    return LocalEngine(policy, config, policy.init(jax.random.key(0)), detokenize=decode_text)


class LineEngine(FakeEngine):
    """Each call returns the next of `lines`; a call with the line None stays pending."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.submitted_calls: list[Call] = []
        self.held_calls: list[Call] = []
        self.pending_generations: list[GenerationFuture] = []

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Any = (),
    ) -> "Future[Call]":
        line = self.lines.pop(0)
        action = RENDERER.action_ids(assistant(line or ""))[: sampling.budget]
        stopped = int(action[-1]) in sampling.stop_ids
        call = Call(
            ids,
            action,
            -np.arange(1.0, 1.0 + len(action), dtype=np.float32),
            np.full(len(action), 3, np.int32),
            sampling,
            "stop" if stopped else "budget",
            key=key,
            parent=parent,
        )
        self.submitted_calls.append(call)
        future = GenerationFuture()
        future.set_running_or_notify_cancel()
        if line is None:
            self.pending_generations.append(future)
        else:
            self.held_calls.append(call)
            future.set_result(call)
        return future

    def release(self, call: Call) -> None:
        if call in self.held_calls:
            self.held_calls.remove(call)


class CaptureFixture:
    """A capture server on its own event loop in a thread."""

    def __init__(
        self,
        engine: Engine,
        agents: dict[str, Agent] | None = None,
        limits: ServerLimits | None = None,
        **table_options: Any,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.agent_table = AgentTable(
            agents or {"policy": AGENT}, {"policy": engine}, **table_options
        )
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._limits = limits or ServerLimits()
        self.server = self.run(self._start())
        self._count = 0
        self.clients: list[Any] = []  # closed at the end

    async def _start(self) -> CaptureServer:
        server = CaptureServer(limits=self._limits)
        await server.start()
        return server

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(30)

    def session(self, key: RandomKey = (0, 0, 0, 0), task: Task = TASK) -> CaptureSession:
        async def make() -> CaptureSession:
            self._count += 1
            identity = f"{self._count}-test"
            return self.server.open(
                CaptureSession(
                    identity,
                    f"sk-{identity}-secret{self._count}",
                    task,
                    key[-1],
                    key,
                    self.agent_table,
                )
            )

        return self.run(make())

    def client(self, session: CaptureSession) -> httpx2.Client:
        """A plain HTTP request, for those that the openai client cannot make."""
        return httpx2.Client(
            base_url=self.server.url_of(session),
            headers={"Authorization": f"Bearer {session.secret}"},
            timeout=30,
        )

    def close_session(self, session: CaptureSession) -> None:
        async def close() -> None:
            self.server.close(session)

        self.run(close())

    def wait_until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        async def wait() -> None:
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.01)

        self.run(wait())

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextlib.contextmanager
def capture_fixture(engine: Engine, **fields: Any) -> Iterator[CaptureFixture]:
    capture = CaptureFixture(engine, **fields)
    try:
        yield capture
    finally:
        capture.close()
