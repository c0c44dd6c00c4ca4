"""`invariants`: the fraction of a step that its checks take, in a small run of two phases."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.configs import chain_gigpo
from agentrl_jax.launch.benchmarks.rivals import quartiles, round_significant
from agentrl_jax.launch.benchmarks.shapes import run_environment
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.storage import jsonl
from agentrl_jax.training import loop
from agentrl_jax.training.config import EvaluationConfig, Experiment

WARM_UP = 2  # steps of each phase that compile


@dataclasses.dataclass
class InvariantCost:
    """Fine-tuning and GiGPO on the chain, the episodes of many short turns of a small model: the
    least favorable case, since checks are made for each call and sequence and a step of so small a
    model is short.
    """

    steps: int = option(10, "Steps of each phase; two more warm up.", 1)

    def prepare(self) -> None:
        """Register the environments."""
        import agentrl_jax.envs  # noqa: F401

    def run(self) -> dict[str, Any]:
        """Measure and report."""
        experiment = self.experiment()
        with tempfile.TemporaryDirectory() as folder:
            loop.train(experiment, Path(folder), quiet=True)
            lines = [line for _, line in jsonl.read_lines(Path(folder) / "metrics.jsonl")]
        return {
            "bench": "invariants",
            "sizes": dataclasses.asdict(self),
            **{
                phase: cost_of_checks([line for line in lines if line["phase"] == phase][WARM_UP:])
                for phase in experiment.phases
            },
            **run_environment(),
        }

    def experiment(self) -> Experiment:
        """The run, without evaluations."""
        experiment = chain_gigpo.get_config()
        for phase in experiment.phases.values():
            phase.steps = self.steps + WARM_UP
        experiment.evaluation = EvaluationConfig(episodes=0, players=())
        if experiment.demonstrations:
            experiment.demonstrations.episodes = 400
        return experiment


def cost_of_checks(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Seconds of steps and of their checks, and the median fraction, from metrics of steps."""
    seconds = [line["time/seconds"] for line in lines]
    checks = [line["time/invariants"] for line in lines]
    fraction = float(np.median([x / total for x, total in zip(checks, seconds)]))
    return {
        "seconds": quartiles(seconds),
        "checks": quartiles(checks),
        "fraction": round_significant(fraction),
    }
