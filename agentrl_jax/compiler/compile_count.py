"""Counts XLA compilations: after a few warmup steps there must be none."""

import jax.monitoring


class _CompileCounter:
    """The number of programs that this process compiled since the module was imported."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _on_event(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


_COUNTER = _CompileCounter()


def compile_count() -> int:
    """Programs compiled so far in this process."""
    return _COUNTER.count
