"""`TaskSet`: a fixed number of tasks that recur, drawn uniformly or by a task sampler."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.lazy_tasks import LazyTasks, Tasks
from agentrl_jax.rollout.task_sampler import TaskSampler
from agentrl_jax.training.task_source import (
    EnvironmentSpec,
    TaskIterator,
    TaskSource,
    new_env_seed,
)


@dataclass
class TaskSet(TaskSource):
    """`size` tasks of one environment, which replay and curricula over tasks need."""

    size: int
    sampler: TaskSampler | None = None  # draws among the tasks; None: uniformly
    environment: EnvironmentSpec | None = None  # None: the experiment's

    @property
    def learns(self) -> bool:
        return self.sampler is not None

    def open(self, seed: int, environment: EnvironmentSpec) -> TaskIterator:
        if self.size < 1:
            raise UserError(f"a task set needs at least 1 task, not {self.size}")
        return TaskSetIterator(
            self.size, copy.deepcopy(self.sampler), self.environment or environment, seed
        )

    def fixed_tasks(self, count: int, seed: int, environment: EnvironmentSpec) -> Tasks:
        return (self.environment or environment).fixed_tasks(
            min(count, self.size), seed, environment
        )

    def labeled_environments(self, environment: EnvironmentSpec) -> dict[str, EnvironmentSpec]:
        return {"": self.environment or environment}


class TaskSetIterator(TaskIterator):
    """Draws from the set: a function of seed, step, round, and what the sampler has observed."""

    def __init__(
        self, size: int, sampler: TaskSampler | None, environment: EnvironmentSpec, seed: int
    ) -> None:
        self._size, self._sampler, self._environment = size, sampler, environment
        self._seed = seed
        self._indices: list[int] = []  # the last draw's indices into the set

    def draw(self, step: int, round_index: int, count: int) -> Tasks:
        rng = np.random.default_rng(
            [new_env_seed(self._seed, step, round_index, i) for i in range(count)]
        )
        indices = self._indices = (
            self._sampler.sample(self._size, count, rng)
            if self._sampler
            else rng.integers(self._size, size=count).tolist()
        )
        return LazyTasks(
            count, lambda i: self._environment.task(seed_of(self._seed, 2, indices[i]))
        )

    def observe(self, success_rates: Sequence[float | None]) -> None:
        if self._sampler is None:
            return
        observed = [(i, x) for i, x in zip(self._indices, success_rates) if x is not None]
        self._sampler.observe([i for i, _ in observed], [rate for _, rate in observed])

    def state(self) -> Any:
        return None if self._sampler is None else self._sampler.state()

    def load(self, state: Any) -> None:
        if self._sampler is not None:
            self._sampler.load(state)
