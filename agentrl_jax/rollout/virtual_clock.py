"""`VirtualClock`: declared instead of measured time: asynchronous runs are repeatable to the bit.

No rollouts run while the trainer works: the event loop runs whenever the trainer waits for it or
lets time pass, and where no task is ready its time jumps to the next timer. The durations of calls,
environment replies (`latency.EnvLatency`) and trainer steps are declared; the real work of a call
is waited for when its declared time has passed.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentrl_jax.engine import Engine, PromptImage, Scorer, WeightHolder
from agentrl_jax.policy import Params
from agentrl_jax.rollout.named_models import Model
from agentrl_jax.trajectories import Call, RandomKey, Sampling


@dataclass
class VirtualClock:
    """Durations in virtual seconds.

    Environments run in this process (`workers=0`), each turn as late as its `EnvLatency`.
    """

    call_seconds: float = 1.0  # of an engine
    step_seconds: float = 1.0  # of the trainer, from one publication of weights to the next

    def make_loop(self) -> "VirtualLoop":
        """The event loop of a runtime."""
        return VirtualLoop()

    def wrap_engine(
        self, engine: Engine, run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> "VirtualTimeEngine":
        """The engine on this clock; `run` runs a coroutine to its end on the loop
        (`Runtime.run`).
        """
        return VirtualTimeEngine(engine, self, run)

    def wrap_model(self, model: Model, run: Callable[[Coroutine[Any, Any, None]], None]) -> Model:
        """The model with its engine and scorer on this clock; see `wrap_engine`."""
        engine = self.wrap_engine(model.engine, run) if model.engine else None
        scorer = VirtualTimeScorer(model.scorer, self.call_seconds) if model.scorer else None
        return replace(model, engine=engine, scorer=scorer)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer where no task is ready."""

    def __init__(self) -> None:
        super().__init__(_TimeJumpSelector(self))
        self.now = 0.0
        # asyncio's tolerance for due timers, which must exceed the rounding of `now`
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.now


class _TimeJumpSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | int | None = None) -> Any:
        if timeout is None:  # no timer is set: wait for another thread
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._loop.now += timeout
        return ready


class VirtualTimeEngine:
    """An engine whose calls take the declared time, with the weights at their start."""

    def __init__(
        self, engine: Engine, clock: VirtualClock, run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._engine, self._clock, self._run = engine, clock, run
        self._in_flight: set[Future[Call]] = set()

    @property
    def num_slots(self) -> int:
        return self._engine.num_slots

    @property
    def positions(self) -> int:
        return self._engine.positions

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        """See `Engine.submit`."""
        real, virtual = self._engine.submit(ids, sampling, key, parent, images), Future[Call]()
        self._in_flight.add(real)
        loop = asyncio.get_running_loop()
        loop.call_later(self._clock.call_seconds, self._deliver, real, virtual)
        return virtual

    def _deliver(self, real: "Future[Call]", virtual: "Future[Call]") -> None:
        self._in_flight.discard(real)
        is_active = virtual.set_running_or_notify_cancel()
        error = real.exception()  # waits for the call
        if not is_active and error is None:
            self._engine.release(real.result())
        elif is_active and error is not None:
            virtual.set_exception(error)
        elif is_active:
            virtual.set_result(real.result())

    def release(self, call: Call) -> None:
        self._engine.release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """Publish after a trainer's step in virtual time.

        Which calls see the new weights follows from the declared times alone.
        """
        self._run(asyncio.sleep(self._clock.step_seconds))
        wait(self._in_flight)
        self._engine.publish(params, version, recompute)

    def weights_in_use(self) -> Sequence[tuple[int, Params]]:
        """See `WeightHolder.weights_in_use`; none where the engine is no such holder."""
        return self._engine.weights_in_use() if isinstance(self._engine, WeightHolder) else []

    def close(self) -> None:
        self._engine.close()


@dataclass(frozen=True)
class VirtualTimeScorer:
    """A scorer whose scores take the declared time of a call."""

    scorer: Scorer
    seconds: float

    def submit(self, tokens: np.ndarray, is_scored: np.ndarray) -> "Future[float]":
        """See `Scorer.submit`."""
        real, virtual = self.scorer.submit(tokens, is_scored), Future[float]()

        def deliver() -> None:
            error = real.exception()  # waits for the score
            if not virtual.set_running_or_notify_cancel():
                return
            if error is not None:
                virtual.set_exception(error)
            else:
                virtual.set_result(real.result())

        asyncio.get_running_loop().call_later(self.seconds, deliver)
        return virtual

    def close(self) -> None:
        self.scorer.close()
