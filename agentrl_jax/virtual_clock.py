"""`VirtualClock`: time that is declared and not measured, so that an asynchronous run can be repeated to the bit.

Nothing runs beside the trainer then: the event loop runs whenever the trainer waits for it or lets time pass, and where nobody is
ready its time jumps to the next timer. What a call, a world's answer (`delays.Delay`) and a trainer's step take is declared;
the real work behind a call is waited for when its time has come.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.engine import Engine, Image
from agentrl_jax.policy import Params
from agentrl_jax.trajectories import Call, Key, Sampling


@dataclass
class VirtualClock:
    """What things take, in virtual seconds. Worlds are those of this process (`workers=0`), each turn as late as its delay says."""

    call: float = 1.0  # of an engine
    step: float = 1.0  # of the trainer, from one publication of weights to the next

    def loop(self) -> "VirtualLoop":
        """The event loop of a runtime."""
        return VirtualLoop()

    def paced(self, engine: Engine, run: Callable[[Coroutine[Any, Any, None]], None]) -> "Paced":
        """The engine on this clock; `run` runs a coroutine to its end on the loop (`Runtime.run`)."""
        return Paced(engine, self, run)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where nobody is ready, its time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self.now = 0.0
        self._clock_resolution = 1e-6  # asyncio's: a timer is due within so much, which must be more than a rounding of `now`

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | int | None = None) -> Any:
        if timeout is None:  # no timer is set: somebody else, a thread, must come
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._loop.now += timeout
        return ready


class Paced:
    """An engine each of whose calls takes the declared time; calls keep the weights that they began with."""

    def __init__(self, engine: Engine, clock: VirtualClock, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._engine, self._clock, self._run = engine, clock, run
        self._working: set[Future[Call]] = set()

    @property
    def places(self) -> int:
        return self._engine.places

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        """See `Engine.submit`."""
        real, told = self._engine.submit(ids, sampling, key, parent, images), Future[Call]()
        self._working.add(real)
        asyncio.get_running_loop().call_later(self._clock.call, self._tell, real, told)
        return told

    def _tell(self, real: "Future[Call]", told: "Future[Call]") -> None:
        self._working.discard(real)
        wanted = told.set_running_or_notify_cancel()
        error = real.exception()  # waits for it
        if not wanted and error is None:
            self._engine.release(real.result())
        elif wanted and error is not None:
            told.set_exception(error)
        elif wanted:
            told.set_result(real.result())

    def release(self, call: Call) -> None:
        self._engine.release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """Here the trainer's step passes; which calls see the new weights follows from the declared times alone."""
        self._run(asyncio.sleep(self._clock.step))
        wait(self._working)
        self._engine.publish(params, version, recompute)

    def close(self) -> None:
        self._engine.close()
