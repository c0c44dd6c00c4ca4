"""`recording`: how much longer a step takes that is recorded in the trajectory log."""

import dataclasses
import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.launch.benchmarks.alternating_steps import (
    EXPERIMENTS,
    alternating_experiment,
    cost_of_switch,
    seconds_by_step,
)
from agentrl_jax.launch.benchmarks.rivals import quartiles, round_significant
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.storage import trajectory_log
from agentrl_jax.training import loop
from agentrl_jax.training.config import RunContext
from agentrl_jax.trajectory_record import TrajectoryRecord

PHASE = "rl"


@dataclasses.dataclass(frozen=True)
class SwitchRecording:
    """Record so many groups of a step, or none."""

    groups: int

    def __call__(self, run: RunContext, on: bool) -> None:
        run.experiment.record_groups = self.groups if on else 0


@dataclasses.dataclass
class RecordingCost:
    """Steps of a policy gradient with and without the record, of two models.

    A step is over once all of its lines are written, although a run goes on meanwhile. `fraction`
    is what writing the lines of a step takes by itself, of a step without.
    """

    steps: int = option(24, "Steps; five more warm up or end it.", 2)
    groups: int = option(2, "Groups of a step that are recorded.", 1)
    model: tuple[str, ...] = option(tuple(EXPERIMENTS), "Which model: tiny, base; may be repeated.")

    def prepare(self) -> None:
        """Register the environments."""
        import agentrl_jax.envs  # noqa: F401

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        costs = {model: self._cost(model) for model in self.model}
        return {
            "bench": "recording",
            "sizes": dataclasses.asdict(self),
            **costs,
            **run_environment(),
        }

    def _cost(self, model: str) -> dict[str, Any]:
        """Of the phase, and the size of what it recorded."""
        experiment = alternating_experiment(model, SwitchRecording(self.groups), self.steps)
        experiment.phases = {PHASE: experiment.phases[PHASE]}
        with tempfile.TemporaryDirectory() as name:
            loop.train(experiment, Path(name), quiet=True)
            records = list(trajectory_log.read(Path(name) / trajectory_log.FOLDER))
            writing, sizes = seconds_of_writing(records, Path(name) / "written_again")
        cost = cost_of_switch(seconds_by_step(experiment.phases[PHASE]))
        return {
            **cost,
            "writing": quartiles(writing),
            "fraction": round_significant(
                float(np.median(writing)) / cost["seconds_without"]["median"]
            ),
            "trajectories": len(sizes),
            "bytes_of_a_trajectory": round(sum(sizes) / len(sizes)),
        }


def seconds_of_writing(
    records: Sequence[TrajectoryRecord], path: Path
) -> tuple[list[float], list[int]]:
    """The seconds that writing the records of each step takes by itself, to the disk, and the bytes
    of each record.
    """
    seconds, sizes = [], []
    with open(path, "ab") as file:
        for _, group in itertools.groupby(records, key=lambda record: record.step):
            began = time.perf_counter()
            lines = [trajectory_log.record_line(record).encode("ascii") for record in group]
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - began)
            sizes += map(len, lines)
    return seconds, sizes
