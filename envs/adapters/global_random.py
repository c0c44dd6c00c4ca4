"""`GlobalRandom`: a state of the process's global generators for each environment."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_LOCK = threading.RLock()


class GlobalRandom:
    """A state of `random` and `numpy.random` for code that draws from the global generators.

    Two environments of a process, and its other code, then do not change each other's draws. What
    runs within `swapped_in` runs in one thread at a time.
    """

    def __init__(self, seed: int) -> None:
        self._states = random.Random(seed).getstate(), np.random.RandomState(seed).get_state()

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The global generators have this state within, and their own one again after."""
        with _LOCK:
            others = random.getstate(), np.random.get_state()  # noqa: NPY002
            self._set(self._states)
            try:
                yield
            finally:
                self._states = random.getstate(), np.random.get_state()  # noqa: NPY002
                self._set(others)

    @staticmethod
    def _set(states: tuple) -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
