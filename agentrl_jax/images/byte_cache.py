"""`ByteCache`: values by key, in bounded memory."""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class ByteCache(Generic[T]):
    """Values by key, of which the longest unused are forgotten; the newest stays, however large."""

    def __init__(self, max_bytes: int) -> None:
        """An empty cache of at most so many bytes, or of one value."""
        self._max_bytes, self.num_bytes = max_bytes, 0
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()

    def get(self, key: str) -> T | None:
        """The value of a key, which counts as used; None: there is none."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: str, value: T, num_bytes: int) -> None:
        """Keep a value, which has so many bytes, in place of an earlier one of this key."""
        if key in self._values:
            self.num_bytes -= self._values.pop(key)[1]
        self._values[key] = value, num_bytes
        self.num_bytes += num_bytes
        while self.num_bytes > self._max_bytes and len(self._values) > 1:
            _, (_, forgotten) = self._values.popitem(last=False)
            self.num_bytes -= forgotten

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()
        self.num_bytes = 0
