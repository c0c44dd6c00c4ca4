"""`EnginePool`: several engines as one, whose weights are updated one after another."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary, WeakSet

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.call_checksum import CallChecksum, no_checksum
from agentrl_jax.engine import Engine, ProgramRunner, PromptImage, WeightHolder
from agentrl_jax.inference.engine_config import EngineConfig
from agentrl_jax.inference.local_engine import LocalEngine
from agentrl_jax.policy import Params, Policy
from agentrl_jax.trajectories import Call, RandomKey, Sampling

POLL_SECONDS = 0.01  # seconds between checks whether an engine has switched to its new weights


def make_engine(
    policy: Policy,
    config: EngineConfig,
    params: Params,
    detokenize: Callable[[Sequence[int]], str] | None = None,
    checksum: CallChecksum = no_checksum,
) -> Engine:
    """The engine that a config describes, or a pool of `config.engines` on consecutive devices.

    Args:
        policy: the model.
        config: the sizes and devices of each engine.
        params: the first weights, copied.
        detokenize: decodes token ids; only stop strings need it.
        checksum: of what an engine records of a call (`Invariants.call_checksum`).

    Raises:
        UserError: there are too few devices.
    """
    if config.engines <= 1:
        return LocalEngine(policy, config, params, detokenize=detokenize, checksum=checksum)
    size = config.devices().size
    firsts = [config.first_device + i * size for i in range(config.engines)]
    configs = [dataclasses.replace(config, engines=1, first_device=first) for first in firsts]
    configs[-1].devices()  # raises before any engine is made
    return EnginePool(
        [
            # The pool's own thread publishes, while another one may read the weights in use.
            LocalEngine(
                policy,
                c,
                params,
                detokenize=detokenize,
                first_row=i * c.rows,
                checksum=checksum,
                in_place=False,
            )
            for i, c in enumerate(configs)
        ]
    )


@runtime_checkable
class PoolMember(Engine, Protocol):
    """An engine that reports the version of its weights, its counts and its busy time."""

    @property
    def version(self) -> int: ...

    @property
    def counts(self) -> dict[str, int]: ...

    @property
    def busy_seconds(self) -> float: ...


class EnginePool:
    """An `Engine` made of several engines.

    A call goes to the engine that holds its parent, a new episode to the least loaded of the
    engines with the newest weights. So no token of an episode is older than the weights published
    when it began, however long the update of all engines takes.
    """

    def __init__(self, engines: Sequence[PoolMember]) -> None:
        self._engines = list(engines)
        self._engine_of_call: WeakKeyDictionary[Call, int] = WeakKeyDictionary()
        # Of each engine, the last calls of episodes that wait on their environment.
        self._idle_calls: list[WeakSet[Call]] = [WeakSet() for _ in engines]
        self._num_in_flight = [0] * len(engines)
        self._up_to_date = set(range(len(engines)))  # engines that were given the newest weights
        # Guards the above. Never held while an engine is called: the engine's own lock may be held
        # around `_on_done`.
        self._lock = threading.Lock()
        self._publish_condition = threading.Condition()
        # Weights that some engines have yet to be given.
        self._pending_weights: tuple[Params, int, bool] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._swap_loop, name="weight swap", daemon=True)
        self._thread.start()

    @property
    def num_slots(self) -> int:
        """The sum over the engines."""
        return sum(engine.num_slots for engine in self._engines)

    @property
    def positions(self) -> int:
        return min(engine.positions for engine in self._engines)

    @property
    def counts(self) -> dict[str, int]:
        """Sums over the engines."""
        every = [engine.counts for engine in self._engines]
        return {name: sum(counts[name] for counts in every) for name in every[0]}

    @property
    def busy_seconds(self) -> float:
        """Seconds during which programs ran, a mean over the engines."""
        return sum(engine.busy_seconds for engine in self._engines) / len(self._engines)

    def submit(
        self,
        ids: np.ndarray,
        sampling: Sampling,
        key: RandomKey,
        parent: Call | None = None,
        images: Sequence[PromptImage] = (),
    ) -> "Future[Call]":
        """See `Engine.submit`."""
        with self._lock:
            i = None if parent is None else self._engine_of_call.get(parent)
            if i is None:
                i = min(self._up_to_date, key=self._load)
            self._num_in_flight[i] += 1
            if parent is not None:
                self._idle_calls[i].discard(parent)
        try:
            future = self._engines[i].submit(ids, sampling, key, parent, images)
        except BaseException:
            with self._lock:
                self._num_in_flight[i] -= 1
            raise
        future.add_done_callback(lambda future: self._on_done(i, future))
        return future

    def _load(self, engine_index: int) -> tuple[int, int]:
        """Its episodes, those that wait on their environment included; ties go to the first."""
        episodes = self._num_in_flight[engine_index] + len(self._idle_calls[engine_index])
        return episodes, engine_index

    def _on_done(self, engine_index: int, future: "Future[Call]") -> None:
        with self._lock:
            self._num_in_flight[engine_index] -= 1
            if not future.cancelled() and future.exception() is None:
                self._engine_of_call[future.result()] = engine_index
                self._idle_calls[engine_index].add(future.result())

    def release(self, call: Call) -> None:
        """See `Engine.release`."""
        with self._lock:
            i = self._engine_of_call.get(call)
            if i is not None:
                self._idle_calls[i].discard(call)
        if i is not None:
            self._engines[i].release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """See `Engine.publish`.

        Idle engines, or else the first, get the weights now, the others one after another.
        """
        copy = jax.tree.map(jnp.copy, params)
        with self._publish_condition:
            with self._lock:
                idle = [i for i, in_flight in enumerate(self._num_in_flight) if not in_flight]
            recompute |= self._pending_weights is not None and self._pending_weights[2]
            self._pending_weights = copy, version, recompute
            self._publish_to(idle or [0], exclusive=True)
            self._publish_condition.notify()

    def _publish_to(self, engine_indices: Sequence[int], exclusive: bool = False) -> None:
        """Give engines the pending weights; new episodes go to them (`exclusive`: only to them)."""
        assert self._pending_weights is not None
        for i in engine_indices:
            self._engines[i].publish(*self._pending_weights)
        with self._lock:
            previous = set() if exclusive else self._up_to_date
            self._up_to_date = previous | set(engine_indices)

    def _swap_loop(self) -> None:
        """Give the pending weights to one engine after another."""
        with self._publish_condition:
            while not self._closed:
                if self._pending_weights is None:
                    self._publish_condition.wait()
                    continue
                version = self._pending_weights[1]
                outdated = set(range(len(self._engines))) - self._up_to_date
                if any(self._engines[i].version != version for i in self._up_to_date):
                    self._publish_condition.wait(POLL_SECONDS)  # one drains its calls first
                elif outdated:
                    self._publish_to([min(outdated)])
                else:
                    self._pending_weights = None

    def weights_in_use(self) -> Sequence[tuple[int, Params]]:
        """See `WeightHolder.weights_in_use`."""
        holders = [engine for engine in self._engines if isinstance(engine, WeightHolder)]
        return [pair for holder in holders for pair in holder.weights_in_use()]

    def wait_until_idle(self) -> None:
        """See `ProgramRunner.wait_until_idle`."""
        for engine in self._engines:
            if isinstance(engine, ProgramRunner):
                engine.wait_until_idle()

    def close(self) -> None:
        """Close all engines."""
        with self._publish_condition:
            self._closed = True
            self._publish_condition.notify()
        self._thread.join()
        for engine in self._engines:
            engine.close()
