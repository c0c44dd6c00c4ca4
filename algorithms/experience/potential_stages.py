"""`PotentialStages`: a curriculum from the tasks that teach most to all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.rollout.task_sampler import TaskSampler


def potential(success_rates: np.ndarray) -> np.ndarray:
    """4 p (1 - p): 1 for a task that is solved half the time, 0 for one always or never solved."""
    rates = np.asarray(success_rates, np.float64)
    return 4.0 * rates * (1.0 - rates)


@dataclass
class PotentialStages(TaskSampler):
    """R1-Code-Interpreter's curriculum (arXiv 2505.21668): tasks are ordered by their potential
    4 p (1 - p), and stage s of S draws uniformly from the s/S of them with the highest.

    p is the mean success rate of a task's groups in the first sweeps, each of which draws every
    task once, in order. The paper samples before training; here the sweeps are trained on too, as
    all draws are.

    Args:
        stages: how many; after the last one all tasks are drawn.
        draws_per_stage: draws (rounds of rollouts) of a stage.
        sweeps: how many.

    Raises:
        UserError: one of them is below 1.
    """

    stages: int = 4
    draws_per_stage: int = 50
    sweeps: int = 1

    def __post_init__(self) -> None:
        if min(self.stages, self.draws_per_stage, self.sweeps) < 1:
            raise UserError(f"stages, draws_per_stage and sweeps must be at least 1: {self}")
        self._rates: dict[int, list[float]] = {}  # by task, of the sweeps
        self._swept, self._draws = 0, 0  # tasks drawn by the sweeps, draws after them

    def sample(self, num_tasks: int, count: int, rng: np.random.Generator) -> list[int]:
        """`count` task indices below `num_tasks`."""
        end = min(self._swept + count, self.sweeps * num_tasks)
        sweep = [i % num_tasks for i in range(self._swept, end)]
        self._swept = end
        rest = count - len(sweep)
        if not rest:
            return sweep
        if sweep:  # the last draw of the sweeps is filled with uniform ones
            return [*sweep, *rng.integers(num_tasks, size=rest).tolist()]
        size = self.pool_size(num_tasks)
        self._draws += 1
        rates = np.array([np.mean(self._rates.get(task, 0.0)) for task in range(num_tasks)])
        pool = np.argsort(-potential(rates), kind="stable")[:size]
        return pool[rng.integers(size, size=rest)].tolist()

    def pool_size(self, num_tasks: int) -> int:
        """How many tasks the current stage draws from."""
        stage = min(self._draws // self.draws_per_stage + 1, self.stages)
        return max(1, num_tasks * stage // self.stages)

    def observe(self, tasks: Sequence[int], success_rates: Sequence[float]) -> None:
        """Record a task's first success rates, one for each sweep."""
        for task, rate in zip(tasks, success_rates):
            if len(rates := self._rates.setdefault(task, [])) < self.sweeps:
                rates.append(float(rate))

    def state(self) -> dict[str, Any]:
        rates = {str(task): values for task, values in self._rates.items()}
        return {"rates": rates, "swept": self._swept, "draws": self._draws}

    def load(self, state: Mapping[str, Any]) -> None:
        self._rates = {int(task): values for task, values in state["rates"].items()}
        self._swept, self._draws = state["swept"], state["draws"]
