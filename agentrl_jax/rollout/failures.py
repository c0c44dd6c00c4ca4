"""`Failures`: counts of environment failures in a run, by kind."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.workers.pool import Task


class Failures:
    """Counts of failed attempts by kind, with the last message of each, and of dropped episodes."""

    def __init__(self, log: Callable[[str], None] | None = None) -> None:
        """`log` receives the first failure of each kind, and the first dropped episode."""
        self._log = log or (lambda text: None)
        self.counts: Counter[str] = Counter()
        self.last_messages: dict[str, str] = {}
        self.dropped = 0

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, failure: EnvironmentFailure, task: Task) -> None:
        """Count a failed attempt at an episode."""
        self.counts[failure.kind] += 1
        self.last_messages[failure.kind] = f"{task.name}: {failure}"
        if self.counts[failure.kind] == 1:
            self._log(
                f"an environment failed ({failure.kind}; more of this kind are only counted): "
                f"{self.last_messages[failure.kind]}"
            )

    def add_dropped(self, task: Task) -> None:
        """Count a dropped episode."""
        self.dropped += 1
        if self.dropped == 1:
            self._log(
                f"an episode of {task.name} was dropped after its retries; more are only counted"
            )

    def metrics(self) -> dict[str, float]:
        """Cumulative counts; the difference of two such dicts is what happened in between."""
        kinds = {f"env/failed/{kind}": float(count) for kind, count in sorted(self.counts.items())}
        return {"env/failures": float(self.total), "env/dropped": float(self.dropped), **kinds}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for summary.json."""
        kinds = {
            kind: {"count": count, "last": self.last_messages[kind]}
            for kind, count in sorted(self.counts.items())
        }
        return {"total": self.total, "dropped": self.dropped, "kinds": kinds}
