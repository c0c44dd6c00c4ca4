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

    p is the success rate of a task's group in a first sweep, which draws each task once, in order.
    The paper samples before training; here the sweep is trained on too, as all draws are.

    Args:
        stages: how many; after the last one all tasks are drawn.
        draws_per_stage: draws (rounds of rollouts) of a stage.

    Raises:
        UserError: one of them is below 1.
    """

    stages: int = 4
    draws_per_stage: int = 50

    def __post_init__(self) -> None:
        if min(self.stages, self.draws_per_stage) < 1:
            raise UserError(f"stages and draws_per_stage must be at least 1: {self}")
        self._rates: dict[int, float] = {}  # by task, of the first sweep
        self._swept, self._draws = 0, 0  # tasks drawn by the sweep, draws after it

    def sample(self, num_tasks: int, count: int, rng: np.random.Generator) -> list[int]:
        """`count` task indices below `num_tasks`."""
        sweep = list(range(self._swept, min(self._swept + count, num_tasks)))
        self._swept += len(sweep)
        rest = count - len(sweep)
        if not rest:
            return sweep
        if sweep:  # the last draw of the sweep is filled with uniform ones
            return [*sweep, *rng.integers(num_tasks, size=rest).tolist()]
        size = self.pool_size(num_tasks)
        self._draws += 1
        rates = np.array([self._rates.get(task, 0.0) for task in range(num_tasks)])
        pool = np.argsort(-potential(rates), kind="stable")[:size]
        return pool[rng.integers(size, size=rest)].tolist()

    def pool_size(self, num_tasks: int) -> int:
        """How many tasks the current stage draws from."""
        stage = min(self._draws // self.draws_per_stage + 1, self.stages)
        return max(1, num_tasks * stage // self.stages)

    def observe(self, tasks: Sequence[int], success_rates: Sequence[float]) -> None:
        """Record a task's first success rate."""
        for task, rate in zip(tasks, success_rates):
            self._rates.setdefault(task, float(rate))

    def state(self) -> dict[str, Any]:
        rates = {str(task): rate for task, rate in self._rates.items()}
        return {"rates": rates, "swept": self._swept, "draws": self._draws}

    def load(self, state: Mapping[str, Any]) -> None:
        self._rates = {int(task): rate for task, rate in state["rates"].items()}
        self._swept, self._draws = state["swept"], state["draws"]
