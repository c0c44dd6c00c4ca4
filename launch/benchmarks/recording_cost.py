"""`recording`: how much longer a step takes that is recorded in the trajectory log."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from agentrl_jax.launch.benchmarks.alternating_steps import (
    EXPERIMENTS,
    alternating_experiment,
    cost_of_switch,
    seconds_by_step,
)
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.storage import trajectory_log
from agentrl_jax.training import loop
from agentrl_jax.training.config import RunContext

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

    A step is over once all of its lines are written, although a run goes on meanwhile.
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
            folder = Path(name) / trajectory_log.FOLDER
            sizes = [len(trajectory_log.record_line(x)) for x in trajectory_log.read(folder)]
        return {
            **cost_of_switch(seconds_by_step(experiment.phases[PHASE])),
            "trajectories": len(sizes),
            "bytes_of_a_trajectory": round(sum(sizes) / len(sizes)),
        }
