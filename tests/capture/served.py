"""What tests of the capture endpoint share: a runtime with an engine, and a capture server on its loop in a thread."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import httpx2
import numpy as np
from hand_made import minute_policy

from agentrl_jax.capture.calls import Seats
from agentrl_jax.capture.server import CaptureServer
from agentrl_jax.capture.session import Session
from agentrl_jax.context import FullHistory
from agentrl_jax.engine import Engine, Generation
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.models.tokenizers import byte_tokenizer
from agentrl_jax.rendering import ChatRenderer
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Call, Key, Sampling
from agentrl_jax.workers import Task

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


def text(ids: Sequence[int] | np.ndarray) -> str:
    return str(TOKENIZER.decode(list(ids)))


def local_engine(**fields: Any) -> LocalEngine:
    policy = minute_policy(len(TOKENIZER))
    import jax

    config = EngineConfig(**{"rows": 4, "positions": 256, "chunk": 16, "burst": 4, "longest": 4, "patience": 0.0, **fields})
    return LocalEngine(policy, config, policy.init(jax.random.key(0)), text=text)


class Speaker:
    """Implements `Engine`: says what `lines` hold, one a call; a line of None is not said before `answer` is set or it is given up."""

    places = 8

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.submitted: list[Call] = []
        self.held: list[Call] = []
        self.waiting: list[Generation] = []

    def submit(self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Any = ()) -> "Future[Call]":
        line = self.lines.pop(0)
        action = RENDERER.action_ids(_assistant(line or ""))[: sampling.budget]
        stopped = int(action[-1]) in sampling.stop_ids
        call = Call(
            ids, action, -np.arange(1.0, 1.0 + len(action), dtype=np.float32), np.full(len(action), 3, np.int32), sampling,
            "stop" if stopped else "budget", key=key, parent=parent,
        )  # fmt: skip
        self.submitted.append(call)
        future = Generation()
        future.set_running_or_notify_cancel()
        if line is None:
            self.waiting.append(future)
        else:
            self.held.append(call)
            future.set_result(call)
        return future

    def release(self, call: Call) -> None:
        if call in self.held:
            self.held.remove(call)

    def publish(self, params: Any, version: int, recompute: bool = False) -> None: ...

    def close(self) -> None: ...


def _assistant(line: str) -> Any:
    from agentrl_jax.messages import assistant

    return assistant(line)


class Served:
    """A capture server on a loop of its own in a thread."""

    def __init__(self, engine: Engine, agents: dict[str, Agent] | None = None, **seats: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.seats = Seats(agents or {"policy": AGENT}, {"policy": engine}, **seats)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = self.run(self._start())
        self._count = 0
        self.clients: list[Any] = []  # to be closed at the end

    async def _start(self) -> CaptureServer:
        server = CaptureServer()
        await server.start()
        return server

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def session(self, key: Key = (0, 0, 0, 0), task: Task = TASK) -> Session:
        async def make() -> Session:
            self._count += 1
            identity = f"{self._count}-test"
            return self.server.open(Session(identity, f"sk-{identity}-secret{self._count}", task, key[-1], key, self.seats))

        return self.run(make())

    def client(self, session: Session) -> httpx2.Client:
        """For what the openai client has no words for."""
        return httpx2.Client(base_url=self.server.url_of(session), headers={"Authorization": f"Bearer {session.secret}"}, timeout=30)

    def close_session(self, session: Session) -> None:
        async def close() -> None:
            self.server.close(session)

        self.run(close())

    def until(self, true: Callable[[], bool], seconds: float = 10.0) -> None:
        async def wait() -> None:
            async with asyncio.timeout(seconds):
                while not true():
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
def served(engine: Engine, **fields: Any) -> Iterator[Served]:
    here = Served(engine, **fields)
    try:
        yield here
    finally:
        here.close()
