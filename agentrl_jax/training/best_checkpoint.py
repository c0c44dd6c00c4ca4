"""Which checkpoint of a phase is its best, and whether the phase stops early."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentrl_jax.errors import UserError


@dataclass
class BestCheckpointConfig:
    """Which checkpoint of a phase is kept as its best, and when the phase stops early."""

    # A metric of the evaluations while training, such as "evaluation/return"; empty: none is kept.
    metric: str = ""
    minimize: bool = False
    # A value is a new best only if it is better than the last one by more than this.
    min_improvement: float = 0.0
    # Evaluations in a row without a new best value, after which the phase stops; 0: it never does.
    patience: int = 0
    # The phase ends with the best weights: they are evaluated, later phases start with them, and
    # commands read them unless --checkpoint=newest is given.
    restore: bool = False

    def is_better(self, value: float, other: float | None) -> bool:
        """Whether a value is a new best; `other` is the best before, None: there is none."""
        if not math.isfinite(value):
            return False
        if other is None:
            return True
        return (other - value if self.minimize else value - other) > self.min_improvement


@dataclass(frozen=True)
class BestSoFar:
    """What a phase's evaluations have shown; part of every checkpoint."""

    step: int | None = None  # whose checkpoint is the best; None: there is none yet
    value: float | None = None
    evaluations: int = 0
    without_improvement: int = 0  # evaluations in a row since the best

    def observe(self, config: BestCheckpointConfig, step: int, value: float) -> "BestSoFar":
        """After the evaluation of a step."""
        if config.is_better(value, self.value):
            return BestSoFar(step, value, self.evaluations + 1, 0)
        return BestSoFar(self.step, self.value, self.evaluations + 1, self.without_improvement + 1)

    def is_exhausted(self, config: BestCheckpointConfig) -> bool:
        """Whether the phase stops early."""
        return 0 < config.patience <= self.without_improvement

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def metric_value(config: BestCheckpointConfig, metrics: Mapping[str, float], phase: str) -> float:
    """The metric that the config names. Raises UserError where the evaluation has no such one."""
    if config.metric not in metrics:
        raise UserError(
            f"config.phases.{phase}.best.metric: the evaluations have no metric "
            f"{config.metric!r}, only {', '.join(metrics)}"
        )
    return metrics[config.metric]
