"""`TaskSource`: where tasks come from; `EnvironmentSpec`: one environment, every task new."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl_jax.environment import environment_class
from agentrl_jax.external import ExternalName, NamesExternals
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.lazy_tasks import LazyTasks, Tasks
from agentrl_jax.workers.pool import Task


class TaskIterator:
    """The tasks of a phase, step by step; the same in every process of a run."""

    def draw(self, step: int, round_index: int, count: int) -> Tasks:
        """`count` tasks for a step; a step may have further rounds."""
        raise NotImplementedError

    def observe(self, success_rates: Sequence[float | None]) -> None:
        """Called after each round, where the source learns, with the fraction of successful
        episodes of each task of the last draw; None: it had no episode.
        """

    def metrics(self) -> dict[str, float]:
        """Metrics of the last draw."""
        return {}

    def state(self) -> Any:
        """Plain JSON data for a checkpoint; None where there is no state."""
        return None

    def load(self, state: Any) -> None:
        """Restore what `state` returned."""


class TaskSource:
    """A dataclass that describes where tasks come from.

    `environment` is, in all methods, the one of tasks that name none.
    """

    @property
    def learns(self) -> bool:
        """Whether what is drawn depends on how earlier tasks went (`TaskIterator.observe`)."""
        return False

    def open(self, seed: int, environment: "EnvironmentSpec") -> TaskIterator:
        """The tasks of a phase of a run with this seed."""
        raise NotImplementedError(f"{type(self).__name__} must define open")

    def fixed_tasks(self, count: int, seed: int, environment: "EnvironmentSpec") -> Tasks:
        """The first `count` tasks in a fixed order, for evaluation and demonstrations; fewer where
        there are not so many. Environment seeds, where they are free, are `seed`, `seed` + 1, ...
        """
        raise NotImplementedError(f"{type(self).__name__} must define fixed_tasks")

    def labeled_environments(self, environment: "EnvironmentSpec") -> dict[str, "EnvironmentSpec"]:
        """All environments by `Task.label`; "" is that of tasks without a label."""
        raise NotImplementedError(f"{type(self).__name__} must define environments")


@dataclass
class EnvironmentSpec(TaskSource, NamesExternals):
    """An environment. As a source of tasks, every task has a new seed."""

    name: str  # a Gymnasium id, with the module that registers it
    options: dict[str, Any] = field(default_factory=dict)  # of its constructor

    def external_names(self, location: str) -> Iterator[ExternalName]:
        """The module that registers it, which is imported after it was yielded, then programs and
        servers of its options.
        """
        module, _, _ = self.name.rpartition(":")
        if module:
            yield ExternalName("module", module, f"{location}.name")
        env_class = environment_class(self.name) if self.name else None
        programs = env_class.program_options if env_class else ()
        servers = env_class.server_options if env_class else ()
        for option in (*programs, *servers):
            if self.options.get(option):
                kind = "program" if option in programs else "server"
                name = str(self.options[option])
                yield ExternalName(kind, name, f"{location}.options.{option}")

    def task(self, seed: int, group: int = 0) -> Task:
        """The task of the environment instance with this seed."""
        return Task(self.name, seed, self.options, group=group)

    def open(self, seed: int, environment: "EnvironmentSpec") -> TaskIterator:
        return NewTasks(self, seed)

    def fixed_tasks(self, count: int, seed: int, environment: "EnvironmentSpec") -> Tasks:
        return [self.task(seed + i) for i in range(count)]

    def labeled_environments(self, environment: "EnvironmentSpec") -> dict[str, "EnvironmentSpec"]:
        return {"": self}


@dataclass(frozen=True)
class NewTasks(TaskIterator):
    """Tasks of one environment, each with a seed of its own: a function of seed, step and round."""

    environment: EnvironmentSpec
    seed: int

    def draw(self, step: int, round_index: int, count: int) -> Tasks:
        return LazyTasks(
            count, lambda i: self.environment.task(new_env_seed(self.seed, step, round_index, i))
        )


def new_env_seed(seed: int, step: int, round_index: int, index: int) -> int:
    """The environment seed of a task that no other step or round has."""
    return seed_of(seed, 2, *round_key(step, round_index), index)


def round_key(step: int, round_index: int) -> tuple[int, ...]:
    """The step's part of a random key; further rounds have keys of their own."""
    return (step, round_index) if round_index else (step,)


def numbered(tasks: Tasks, first: int = 0, label: str = "") -> Tasks:
    """The tasks with their numbers as `Task.group`, and with a label where they have none."""
    return LazyTasks(
        len(tasks),
        lambda i: dataclasses.replace(task := tasks[i], group=first + i, label=task.label or label),
    )


def find_task_sources(source: Any) -> list[TaskSource]:
    """All task sources among a phase's source and the dataclasses in its fields."""
    if isinstance(source, TaskSource):
        return [source]
    if not dataclasses.is_dataclass(source):
        return []
    fields = (getattr(source, f.name) for f in dataclasses.fields(source))
    return [inner for value in fields for inner in find_task_sources(value)]
