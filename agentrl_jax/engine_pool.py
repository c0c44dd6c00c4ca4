"""`EnginePool`: several engines as one, whose weights are swapped one after another."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary, WeakSet

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.engine import Engine, Image
from agentrl_jax.local_engine import EngineConfig, LocalEngine
from agentrl_jax.policy import Params, Policy
from agentrl_jax.trajectories import Call, Key, Sampling

LOOK = 0.01  # seconds between two looks at whether an engine has taken up its weights


def make_engine(policy: Policy, config: EngineConfig, params: Params, text: Callable[[Sequence[int]], str] | None = None) -> Engine:
    """The engine that a config describes, or a pool of `config.engines`, on one share of devices after the other.

    Raises UserError where there are too few devices.
    """
    if config.engines <= 1:
        return LocalEngine(policy, config, params, text=text)
    size = config.devices().size
    firsts = [config.first_device + i * size for i in range(config.engines)]
    configs = [dataclasses.replace(config, engines=1, first_device=first) for first in firsts]
    configs[-1].devices()  # fails before anything is made
    return EnginePool([LocalEngine(policy, one, params, text=text) for one in configs])


@runtime_checkable
class Member(Engine, Protocol):
    """An engine that says which weights it samples with."""

    @property
    def version(self) -> int: ...

    @property
    def counts(self) -> dict[str, int]: ...

    @property
    def busy(self) -> float: ...


class EnginePool:
    """Implements `Engine`. A call goes to the engine that holds its parent; a new episode to the emptiest of those with the newest
    weights. So no token of an episode is older than what was published when it began, however long the swap takes."""

    def __init__(self, engines: Sequence[Member]) -> None:
        self._engines = list(engines)
        self._home: WeakKeyDictionary[Call, int] = WeakKeyDictionary()
        self._held: list[WeakSet[Call]] = [WeakSet() for _ in engines]  # the last calls of episodes whose world thinks
        self._working = [0] * len(engines)
        self._newest = set(range(len(engines)))  # who was given the newest weights
        self._lock = threading.Lock()  # of the above; never held while an engine is called, whose lock may be held around `_ended`
        self._publishing = threading.Condition()
        self._next: tuple[Params, int, bool] | None = None  # what some engines still wait for
        self._closed = False
        self._thread = threading.Thread(target=self._swap, name="weight swap", daemon=True)
        self._thread.start()

    @property
    def places(self) -> int:
        return sum(engine.places for engine in self._engines)

    @property
    def counts(self) -> dict[str, int]:
        """Of all engines together."""
        every = [engine.counts for engine in self._engines]
        return {name: sum(counts[name] for counts in every) for name in every[0]}

    @property
    def busy(self) -> float:
        """Seconds that programs ran, a mean over the engines."""
        return sum(engine.busy for engine in self._engines) / len(self._engines)

    def submit(
        self, ids: np.ndarray, sampling: Sampling, key: Key, parent: Call | None = None, images: Sequence[Image] = ()
    ) -> "Future[Call]":
        """See `Engine.submit`."""
        with self._lock:
            home = None if parent is None else self._home.get(parent)
            i = min(self._newest, key=lambda i: (self._working[i] + len(self._held[i]), i)) if home is None else home
            self._working[i] += 1
            if parent is not None:
                self._held[i].discard(parent)
        try:
            future = self._engines[i].submit(ids, sampling, key, parent, images)
        except BaseException:
            with self._lock:
                self._working[i] -= 1
            raise
        future.add_done_callback(lambda ended: self._ended(i, ended))
        return future

    def _ended(self, i: int, future: "Future[Call]") -> None:
        with self._lock:
            self._working[i] -= 1
            if not future.cancelled() and future.exception() is None:
                self._home[future.result()] = i
                self._held[i].add(future.result())

    def release(self, call: Call) -> None:
        with self._lock:
            i = self._home.get(call)
            if i is not None:
                self._held[i].discard(call)
        if i is not None:
            self._engines[i].release(call)

    def publish(self, params: Params, version: int, recompute: bool = False) -> None:
        """See `Engine.publish`. Engines that are idle, or else the first, get the weights now, and the others one after another."""
        copy = jax.tree.map(jnp.copy, params)
        with self._publishing:
            with self._lock:
                now = [i for i, working in enumerate(self._working) if not working] or [0]
            self._next = copy, version, recompute or (self._next is not None and self._next[2])
            self._hand(now, fresh=True)
            self._publishing.notify()

    def _hand(self, now: Sequence[int], fresh: bool = False) -> None:
        """Give engines the next weights, and new episodes from then on to them; `fresh`: and to nobody else."""
        assert self._next is not None
        for i in now:
            self._engines[i].publish(*self._next)
        with self._lock:
            self._newest = set(now) if fresh else self._newest | set(now)

    def _swap(self) -> None:
        with self._publishing:
            while not self._closed:
                if self._next is None:
                    self._publishing.wait()
                elif any(self._engines[i].version != self._next[1] for i in self._newest):
                    self._publishing.wait(LOOK)  # one of them finishes its calls first
                elif late := set(range(len(self._engines))) - self._newest:
                    self._hand([min(late)])
                else:
                    self._next = None

    def close(self) -> None:
        with self._publishing:
            self._closed = True
            self._publishing.notify()
        self._thread.join()
        for engine in self._engines:
            engine.close()
