"""Counts XLA compilations: after a few warm steps there must be none."""

import jax.monitoring


class _Counter:
    """How many programs this process has compiled since the module was imported."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


_COUNTER = _Counter()


def compilations() -> int:
    """Programs compiled so far in this process."""
    return _COUNTER.count
