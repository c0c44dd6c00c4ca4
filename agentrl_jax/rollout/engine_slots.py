"""`EngineSlots`: at most as many episodes at once as the engines have slots."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from agentrl_jax.engine import Engine


class EngineSlots:
    """One semaphore for each named engine, of the engine's `num_slots`."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._semaphores: dict[str, asyncio.Semaphore] = {}
        self._num_slots: dict[str, int] = {}
        self._match_lock = asyncio.Lock()
        for name, engine in engines.items():
            self.add(name, engine)

    def add(self, name: str, engine: Engine) -> None:
        """Add a named engine, or replace it."""
        self._num_slots[name] = engine.num_slots
        self._semaphores[name] = asyncio.Semaphore(engine.num_slots)

    def slot(self, name: str) -> asyncio.Semaphore:
        """A context manager that waits for a slot of an engine and holds it."""
        return self._semaphores[name]

    @asynccontextmanager
    async def match_slots(self, names: Sequence[str]) -> AsyncIterator[None]:
        """Hold a slot for each name, at most all slots of its engine.

        Matches take their slots one after the other, since two that each hold a part of them could
        wait for each other forever.
        """
        async with AsyncExitStack() as held_slots:
            async with self._match_lock:
                for name, count in Counter(names).items():
                    for _ in range(min(count, self._num_slots[name])):
                        await held_slots.enter_async_context(self._semaphores[name])
            yield
