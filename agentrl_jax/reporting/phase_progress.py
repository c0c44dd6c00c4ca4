"""`PhaseProgress`: where a phase is, and the means of its last steps."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentrl_jax.reporting.statistics import REWARD_PART

WINDOW = 10  # steps over which the displayed numbers are averaged


class Activity(NamedTuple):
    """What the trainer does now, and since when (`time.monotonic`)."""

    name: str
    since: float


@dataclass
class PhaseProgress:
    """The steps of a phase so far. Other threads may read it at any time: every field is replaced,
    and none is changed in place.
    """

    phase: str
    total: int  # steps
    completed: int
    title: str = ""  # of the run and its phase

    def __post_init__(self) -> None:
        self.start_time, self.initial_completed = time.monotonic(), self.completed
        self.recent: tuple[tuple[Mapping[str, Any], float], ...] = ()  # metrics and seconds
        self.activity = Activity("", self.start_time)

    def step(self, metrics: Mapping[str, Any], seconds: float) -> None:
        """Add a step."""
        self.completed += 1
        self.recent = (*self.recent[1 - WINDOW :], (metrics, seconds))

    def begin(self, activity: str) -> None:
        """Note what the trainer does from now on."""
        self.activity = Activity(activity, time.monotonic())

    @property
    def step_seconds(self) -> float | None:
        """The mean of the last steps."""
        recent = self.recent
        return sum(seconds for _, seconds in recent) / len(recent) if recent else None

    @property
    def seconds_left(self) -> float | None:
        seconds = self.step_seconds
        return None if seconds is None else seconds * (self.total - self.completed)

    def mean(self, name: str) -> float | None:
        """The mean of a metric over the last steps that have it."""
        values = [value for m, _ in self.recent if (value := m.get(name)) is not None]
        return sum(values) / len(values) if values else None

    @property
    def tokens_per_second(self) -> float | None:
        """Trained tokens by seconds of the last steps."""
        recent = self.recent
        seconds = sum(s for _, s in recent)
        tokens = sum(m.get("tokens") or 0 for m, _ in recent)
        return tokens / seconds if tokens and seconds else None

    def reward_parts(self, prefix: str = REWARD_PART) -> dict[str, float]:
        """The means of the newest step's reward parts, by name."""
        newest = self.recent[-1][0] if self.recent else {}
        means = {
            name.removeprefix(prefix): self.mean(name) for name in newest if name.startswith(prefix)
        }
        return {name: value for name, value in means.items() if value is not None}


def phase_title(experiment: str, phase: str, phases: Iterable[str]) -> str:
    """The title of a phase among those of an experiment."""
    names = list(phases)
    return f"{experiment}: phase {phase} ({names.index(phase) + 1} of {len(names)})"


def format_duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
