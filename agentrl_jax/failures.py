"""`Failures`: what went wrong with worlds in a run, counted by kind."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from agentrl_jax.errors import EnvironmentFailure
from agentrl_jax.workers import Task


class Failures:
    """Counts of failed attempts by kind with the last message of each, and of the episodes that were dropped in the end."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        """`say` is told of the first failure of each kind, and of the first episode that is dropped."""
        self._say = say or (lambda text: None)
        self.counts: Counter[str] = Counter()
        self.last: dict[str, str] = {}
        self.dropped = 0

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, failure: EnvironmentFailure, task: Task) -> None:
        """One attempt at an episode failed."""
        self.counts[failure.kind] += 1
        self.last[failure.kind] = f"{task.name}: {failure}"
        if self.counts[failure.kind] == 1:
            self._say(f"a world failed ({failure.kind}; more of this kind are only counted): {self.last[failure.kind]}")

    def drop(self, task: Task) -> None:
        """An episode was given up."""
        self.dropped += 1
        if self.dropped == 1:
            self._say(f"an episode of {task.name} was dropped after its retries, further ones are counted")

    def metrics(self) -> dict[str, float]:
        """What a step's metrics say of it; differences of two such dicts are what happened in between."""
        kinds = {f"env/failed/{kind}": float(count) for kind, count in sorted(self.counts.items())}
        return {"env/failures": float(self.total), "env/dropped": float(self.dropped), **kinds}

    def record(self) -> dict[str, Any]:
        """Plain data for summary.json."""
        kinds = {kind: {"count": count, "last": self.last[kind]} for kind, count in sorted(self.counts.items())}
        return {"total": self.total, "dropped": self.dropped, "kinds": kinds}
