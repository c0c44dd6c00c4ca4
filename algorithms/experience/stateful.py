"""The base class of components that a checkpoint must store."""

from abc import ABC, abstractmethod
from typing import Any


class Stateful(ABC):
    """Base class of components with a state: replay buffers, running means, counters of draws.

    A trainer copies its components when it is built, and every checkpoint stores the state of those
    that derive from this class; other components have none.
    """

    @abstractmethod
    def state(self) -> Any:
        """Plain JSON data."""

    @abstractmethod
    def load(self, state: Any) -> None:
        """Continue from what `state` returned, after a round trip through JSON."""
