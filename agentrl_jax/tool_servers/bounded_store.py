"""`BoundedStore`: what a server keeps for its clients by id, bounded in number and idle time."""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from agentrl_jax.capture.api_error import APIError

T = TypeVar("T")
MAX_ENDED = 10_000  # ids of which it is known that they have ended


@dataclass
class _Entry(Generic[T]):
    value: T
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    last_use: float = 0.0


class BoundedStore(Generic[T]):
    """Objects of one event loop. Those that are idle for too long make room when it is needed."""

    def __init__(
        self,
        kind: str,
        plural: str,
        max_count: int,
        idle_seconds: float,
        end: Callable[[T], Any],
    ) -> None:
        """Keep nothing yet.

        Args:
            kind: what messages call one.
            plural: and several.
            max_count: that are kept at once.
            idle_seconds: after which one makes room for another.
            end: called for each that is dropped.
        """
        self._kind, self._plural, self._end = kind, plural, end
        self._max_count, self._idle_seconds = max_count, idle_seconds
        self._entries: OrderedDict[Any, _Entry[T]] = OrderedDict()  # the last used is last
        self._ended: deque[Any] = deque(maxlen=MAX_ENDED)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Any) -> bool:
        return key in self._entries

    def check_room(self, count: int = 1) -> None:
        """Drop what is idle for too long. Raises APIError where there is no room for `count` more
        even so.
        """
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.lock.locked() or time.monotonic() - entry.last_use < self._idle_seconds:
                break
            self.drop(key)
        if len(self._entries) + count > self._max_count:
            raise APIError(
                f"there are {len(self._entries):,} {self._plural} already: end some, or ask again "
                "later",
                status=429,
                retry_after=1,
            )

    def add(self, key: Any, value: T) -> None:
        """Keep an object; `check_room` comes before."""
        self._entries[key] = _Entry(value, last_use=time.monotonic())

    def check_not_ended(self, key: Any) -> None:
        """Raises APIError where the object of this id was dropped."""
        if key not in self._entries and key in self._ended:
            raise APIError(f"the {self._kind} {key!r:.80} ended or was idle too long", status=410)

    @contextlib.asynccontextmanager
    async def use(self, key: Any) -> AsyncIterator[T]:
        """The object of an id, for one request at a time. Raises APIError where there is none."""
        self.check_not_ended(key)
        if key not in self._entries:
            raise APIError(f"there is no {self._kind} {key!r:.80}", status=404)
        entry = self._entries[key]
        async with entry.lock:
            self.check_not_ended(key)
            self._entries.move_to_end(key)
            try:
                yield entry.value
            finally:
                entry.last_use = time.monotonic()

    def drop(self, key: Any) -> None:
        """End an object, if there is one of this id."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._ended.append(key)
            self._end(entry.value)

    def drop_all(self) -> None:
        for key in list(self._entries):
            self.drop(key)
