"""`ConsumedTasks`: which tasks of an asynchronous phase were trained on, with their stats."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ConsumedTasks:
    """Which tasks were trained on: all below `first_unconsumed`, and some after it.

    The stats of a task are [groups, episodes, turns, seconds].
    """

    first_unconsumed: int = 0
    consumed_ahead: dict[int, list[float]] = field(default_factory=dict)
    # Sums over the tasks below `first_unconsumed`.
    totals: list[float] = field(default_factory=lambda: [0.0] * 4)

    def consume(self, task: int, stats: Sequence[float]) -> None:
        """Raises AssertionError where the task was consumed before."""
        assert task >= self.first_unconsumed and task not in self.consumed_ahead, (
            f"task {task} was used twice"
        )
        self.consumed_ahead[task] = list(stats)
        while self.first_unconsumed in self.consumed_ahead:
            first_stats = self.consumed_ahead.pop(self.first_unconsumed)
            self.totals = _elementwise_sum(self.totals, first_stats)
            self.first_unconsumed += 1

    def unconsumed(self) -> tuple[list[int], int]:
        """The unconsumed tasks before the last consumed one, and the task after that."""
        end = max(self.consumed_ahead, default=self.first_unconsumed - 1) + 1
        return [
            task for task in range(self.first_unconsumed, end) if task not in self.consumed_ahead
        ], end

    def metrics(self) -> dict[str, float]:
        """Means over the consumed tasks, and over those below `first_unconsumed`.

        They differ by what the tasks ahead contribute: a bias against long episodes shows here.
        """
        consumed = functools.reduce(_elementwise_sum, self.consumed_ahead.values(), self.totals)
        metrics = {"stream/overtaking": float(len(self.consumed_ahead))}
        for name, sums in (("used", consumed), ("started", self.totals)):
            groups, episodes, turns, seconds = sums
            if groups:
                metrics[f"stream/turns_{name}"] = turns / max(episodes, 1)
                metrics[f"time/group_{name}"] = seconds / groups
        return metrics

    def state(self) -> Any:
        return {
            "first": self.first_unconsumed,
            "after": [[task, stats] for task, stats in self.consumed_ahead.items()],
            "sums": self.totals,
        }

    @classmethod
    def from_state(cls, state: Any) -> "ConsumedTasks":
        ahead = {task: list(stats) for task, stats in state["after"]}
        return cls(state["first"], ahead, list(state["sums"]))


def _elementwise_sum(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x + y for x, y in zip(a, b)]
