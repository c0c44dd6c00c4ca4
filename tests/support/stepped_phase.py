"""A phase of a small run whose steps a test makes one by one, each with its invariants."""

from pathlib import Path
from typing import Any

from agentrl_jax.training.config import Experiment
from agentrl_jax.training.phase_trainer import PhaseTrainer
from agentrl_jax.training.run import Run
from agentrl_jax.training.run_invariants import Reaction
from agentrl_jax.training.stop_signal import StopSignal


class SteppedPhase:
    """The trainer of a phase; `run` is open until `close`."""

    def __init__(
        self, experiment: Experiment, run_dir: Path, phase: str, reaction: Reaction = "stop"
    ) -> None:
        self.run = Run(experiment, run_dir, quiet=True)
        self.trainer = PhaseTrainer(
            self.run, phase, experiment.phases[phase], self.run.params, invariants=reaction
        )
        self._stop, self.next_step = StopSignal(), 0
        self._iterator = self.trainer._begin()

    def step(self) -> dict[str, Any]:
        """A whole step, its report included; the metrics that it reported.

        Raises:
            UserError: an invariant does not hold.
        """
        step, self.next_step = self.next_step, self.next_step + 1
        self.trainer._unreported = None  # of a step that a test stopped
        self.trainer._step(step, self._iterator, self._stop)
        assert self.trainer._unreported is not None
        metrics = self.trainer._unreported.metrics
        self.trainer._report()
        self.trainer._invariants.exchange()
        return metrics

    def close(self) -> None:
        self.run.close()
