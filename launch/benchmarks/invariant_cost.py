"""`invariants`: the fraction of a step that its checks take, in small runs of two phases."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.launch.benchmarks.alternating_steps import (
    EXPERIMENTS,
    WARM_UP,
    alternating_experiment,
    cost_of_switch,
    is_with,
    seconds_by_step,
)
from agentrl_jax.launch.benchmarks.rivals import quartiles, round_significant
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.storage import jsonl
from agentrl_jax.training import loop
from agentrl_jax.training.config import RunContext


def switch_checks(run: RunContext, on: bool) -> None:
    """Check the invariants of the step, or none."""
    run.runtime.invariants.enabled = on


@dataclasses.dataclass
class InvariantCost:
    """Fine-tuning and a policy gradient, of two models. The smaller one is the least favorable
    case: checks are made for each call and sequence, and a step of so small a model is short.
    """

    steps: int = option(24, "Steps of each phase; five more warm up or end it.", 2)
    model: tuple[str, ...] = option(tuple(EXPERIMENTS), "Which model: tiny, base; may be repeated.")

    def prepare(self) -> None:
        """Register the environments."""
        import agentrl_jax.envs  # noqa: F401

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        costs = {model: self._costs(model) for model in self.model}
        return {
            "bench": "invariants",
            "sizes": dataclasses.asdict(self),
            **costs,
            **run_environment(),
        }

    def _costs(self, model: str) -> dict[str, Any]:
        """Of each phase."""
        experiment = alternating_experiment(model, switch_checks, self.steps)
        with tempfile.TemporaryDirectory() as folder:
            loop.train(experiment, Path(folder), quiet=True)
            lines = [line for _, line in jsonl.read_lines(Path(folder) / "metrics.jsonl")]
        return {
            name: {
                **cost_of_checks([line for line in lines if line["phase"] == name]),
                **cost_of_switch(seconds_by_step(phase)),
            }
            for name, phase in experiment.phases.items()
        }


def cost_of_checks(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of the checks of steps, and the median fraction, from metrics of all steps."""
    used = [line for line in lines[WARM_UP:] if is_with(line["step"])]
    checks = [line["time/invariants"] for line in used]
    fractions = [x / line["time/seconds"] for x, line in zip(checks, used)]
    return {
        "checks": quartiles(checks),
        "fraction": round_significant(float(np.median(fractions))),
    }
