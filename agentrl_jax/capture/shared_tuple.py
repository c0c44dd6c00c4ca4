"""`SharedTuple`: a tuple that is kept as what it adds to another one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class SharedTuple(Generic[T]):
    """Items of a tuple and then new ones; n tuples that extend each other take the memory of one.

    Args:
        new: the items at the end.
        parent: those before; None: there are none.
    """

    new: tuple[T, ...]
    parent: "SharedTuple[T] | None" = None

    def extended(self, *items: T) -> "SharedTuple[T]":
        """With further items."""
        return SharedTuple(items, self)

    def __iter__(self) -> Iterator[T]:
        parts, part = [], self
        while part is not None:
            parts.append(part.new)
            part = part.parent
        return (item for new in reversed(parts) for item in new)
