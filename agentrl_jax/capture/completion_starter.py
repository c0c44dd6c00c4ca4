"""`CompletionStarter`: parses requests in threads, and lets so many of them run at once."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from agentrl_jax.capture.admission import AdmissionQueue
from agentrl_jax.capture.chat_messages import check_arguments
from agentrl_jax.capture.request_json import parse_json
from agentrl_jax.capture.requests import CompletionRequest
from agentrl_jax.capture.responses import ResponseFormat
from agentrl_jax.capture.server_limits import ServerLimits
from agentrl_jax.capture.session import CaptureSession
from agentrl_jax.capture.sse import Completion
from agentrl_jax.capture.worker_threads import WorkerThreads


class CompletionStarter:
    """The requests of a server, from their bytes to their calls."""

    def __init__(self, limits: ServerLimits) -> None:
        self._limits, self._threads = limits, WorkerThreads()
        self._queues: dict[str, AdmissionQueue] = {}  # by engine

    async def start(
        self,
        session: CaptureSession,
        data: bytes,
        parse: Callable[[Any], CompletionRequest],
        response_format: ResponseFormat,
    ) -> Completion:
        """Parse a request, wait until it may run, and start its calls.

        Raises:
            APIError: it is refused, or its wait was too long.
        """
        size, now = len(data), int(time.time())

        def parse_request() -> CompletionRequest:
            request = parse(parse_json(data, self._limits))
            check_arguments(request.messages, self._limits.max_json_depth)
            return request

        request = await self._threads.run(size, parse_request)
        session.check(request)
        name, engine = session.engine_of(request.model)
        queue = self._queues.setdefault(name, AdmissionQueue(engine.num_slots, self._limits))
        await queue.acquire()
        try:
            prompt = await self._threads.run(size, lambda: session.make_prompt(request))
            completion = Completion(session, request, prompt, now, response_format)
        except BaseException:
            queue.release()
            raise
        ended = asyncio.gather(*completion.tasks, return_exceptions=True)
        ended.add_done_callback(lambda _: queue.release())
        return completion

    def close(self) -> None:
        self._threads.close()
