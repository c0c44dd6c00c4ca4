"""`Tracker`: what follows a run beside the files of its folder, such as a tracking service."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

Status = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers know it."""

    project: str  # the experiment's name
    name: str  # the run folder's
    folder: Path  # of the tracker, in the run folder
    # The config's values by dotted name: "phases.rl.steps" -> 100.
    config: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    id: str = ""  # that `Tracker.start` returned when the run began; empty: it begins now


class Tracker:
    """Base class of trackers; a method that is not overridden does nothing.

    All methods are called in one thread that is not the trainer's, so they may take their time;
    what they raise is reported once and ends nothing (`TrackerThread`).
    """

    name: ClassVar[str] = "tracker"  # in messages, and of its folder in RUN/trackers/

    def start(self, run: TrackedRun) -> str:
        """Begin to track a run, or continue where `run.id` is given; returns the run's id."""
        return run.id or run.name

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics of a step, counted over all phases; steps come in order, each once."""

    def summary(self, values: Mapping[str, float]) -> None:
        """The numbers of the evaluation table: "GRPO/mean_return" -> 1.5."""

    def artifact(self, path: Path) -> None:
        """A file of the run folder that is to be kept with the run."""

    def finish(self, status: Status) -> None:
        """The last call; a run that did not finish may be continued by a later `start`."""
