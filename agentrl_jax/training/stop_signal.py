"""`StopSignal`: Ctrl-C and SIGTERM as a request to stop after the current step."""

import signal
from types import FrameType
from typing import Any


class StopSignal:
    """Turns the first Ctrl-C, or the SIGTERM before a preemption, into a request to stop after the
    current step; a second one interrupts at once.
    """

    def __init__(self) -> None:
        self.is_set = False

    def __enter__(self) -> "StopSignal":
        self._previous_handlers = {
            signum: signal.signal(signum, self._handle_signal)
            for signum in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: Any) -> None:
        for signum, handler in self._previous_handlers.items():
            # None: a handler that was not installed from Python (JAX's) cannot be restored.
            signal.signal(signum, handler or signal.SIG_DFL)

    def _handle_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True
