"""`EngineSlots`: at most as many episodes at once as the engines have slots."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

from agentrl_jax.engine import Engine
from agentrl_jax.errors import UserError

# The semaphores of which the current task, or one that started it, holds a slot.
_HELD: ContextVar[frozenset[asyncio.Semaphore]] = ContextVar("held_slots", default=frozenset())


class SlotUse(NamedTuple):
    """Episodes that hold a slot of an engine, and those that wait for one."""

    in_use: int
    total: int
    waiting: int


class _Slots(asyncio.Semaphore):
    """A semaphore that counts who holds it and who waits."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.total, self.in_use, self.waiting = total, 0, 0

    async def acquire(self) -> Literal[True]:
        self.waiting += 1
        try:
            await super().acquire()
        finally:
            self.waiting -= 1
        self.in_use += 1
        return True

    def release(self) -> None:
        self.in_use -= 1
        super().release()


class EngineSlots:
    """One semaphore for each named engine, of the engine's `num_slots`."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._semaphores: dict[str, _Slots] = {}
        self._match_lock = asyncio.Lock()
        for name, engine in engines.items():
            self.add(name, engine)

    def add(self, name: str, engine: Engine) -> None:
        """Add a named engine, or replace it."""
        self._semaphores[name] = _Slots(engine.num_slots)

    def use(self) -> dict[str, SlotUse]:
        """How many episodes each engine has, by name; from any thread."""
        return {
            name: SlotUse(x.in_use, x.total, x.waiting)
            for name, x in list(self._semaphores.items())
        }

    @asynccontextmanager
    async def slot(self, name: str) -> AsyncIterator[None]:
        """Wait for a slot of an engine, and hold it."""
        async with self._semaphores[name]:
            with self._mark_held(name):
                yield

    def check_none_held(self, name: str) -> None:
        """Raises UserError within an episode that holds a slot of the engine: where episodes hold
        all slots and each waits for one more, all wait forever.
        """
        if self._semaphores[name] in _HELD.get():
            raise UserError(
                f"an episode with a slot of the engine {name!r} asks for another one, and would "
                "wait for itself: sample with an agent that has an engine of its own, or name a "
                "model (docs/judges.md)"
            )

    @contextmanager
    def _mark_held(self, *names: str) -> Iterator[None]:
        """Slots of these engines are marked as held by this task."""
        token = _HELD.set(_HELD.get() | {self._semaphores[name] for name in names})
        try:
            yield
        finally:
            _HELD.reset(token)

    @asynccontextmanager
    async def match_slots(self, names: Sequence[str]) -> AsyncIterator[None]:
        """Hold a slot for each name, at most all slots of its engine.

        Matches take their slots one after the other, since two that each hold a part of them could
        wait for each other forever.
        """
        async with AsyncExitStack() as held_slots:
            async with self._match_lock:
                for name, count in Counter(names).items():
                    for _ in range(min(count, self._semaphores[name].total)):
                        await held_slots.enter_async_context(self._semaphores[name])
            with self._mark_held(*names):
                yield
