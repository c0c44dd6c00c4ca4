"""`RankedEngine`: draws several utterances for every prompt and says the best of them (CHAI, arXiv 2204.08426)."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

import numpy as np

from agentrl_jax.engine import Engine, Image
from agentrl_jax.errors import UserError
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, Key, Sampling

# The choices of some prompts -> which of each is the best
Choose = Callable[[Sequence[Sequence[Call]]], Sequence[int]]


class RankedEngine:
    """Implements `Engine` around another. A thread of its own chooses, for many prompts at once."""

    def __init__(self, engine: Engine, choices: int, choose: Choose, at_once: int) -> None:
        """`choose` is given at most `at_once` calls."""
        if choices > at_once:
            raise UserError(f"of {choices} utterances the best is to be found, but only {at_once} can be judged at once")
        self._engine, self._choices, self._choose, self._prompts = engine, choices, choose, at_once // choices
        self._drawn: SimpleQueue[tuple[Future[Call], list[Future[Call]]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="ranking", daemon=True)
        self._thread.start()

    @property
    def places(self) -> int:
        return max(1, self._engine.places // self._choices)

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        """See `Engine.submit`; the number of the choice is appended to the key."""
        future: Future[Call] = Future()
        drawn = [self._engine.submit(ids, sampling, (*key, i), parent, images) for i in range(self._choices)]
        left, lock = [len(drawn)], threading.Lock()

        def one_more(_: object) -> None:
            with lock:
                left[0] -= 1
                last = left[0] == 0
            if last:
                self._drawn.put((future, drawn))

        for one in drawn:
            one.add_done_callback(one_more)
        return future

    def release(self, call: Call) -> None:
        self._engine.release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        self._engine.publish(params, version, recompute)

    def close(self) -> None:
        """Ends the choosing; the engine within is closed by whoever made it."""
        self._drawn.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (first := self._drawn.get()) is not None:
            waiting = [first]
            while len(waiting) < self._prompts and not self._drawn.empty():
                if (one := self._drawn.get()) is None:
                    self._drawn.put(None)
                    break
                waiting.append(one)
            self._chosen(waiting)

    def _chosen(self, waiting: Sequence[tuple["Future[Call]", list["Future[Call]"]]]) -> None:
        ready: list[tuple[Future[Call], list[Call]]] = []
        for future, drawn in waiting:
            failed = next((error for one in drawn if (error := one.exception()) is not None), None)
            calls = [one.result() for one in drawn if one.exception() is None]
            if failed is None and future.set_running_or_notify_cancel():
                ready.append((future, calls))
                continue
            for call in calls:
                self._engine.release(call)
            if failed is not None and not future.cancelled():
                future.set_exception(failed)
        try:
            best = self._choose([calls for _, calls in ready]) if ready else []
        except BaseException as error:
            for future, _ in ready:
                future.set_exception(error)
            return
        for (future, calls), i in zip(ready, best):
            for j, call in enumerate(calls):
                if j != i:
                    self._engine.release(call)
            future.set_result(calls[i])
