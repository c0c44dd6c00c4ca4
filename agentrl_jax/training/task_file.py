"""`TaskFile`: tasks from a file or dataset folder, read through grain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grain

from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.lazy_tasks import LazyTasks, Tasks
from agentrl_jax.storage.record_files import Record, RecordSource, open_records
from agentrl_jax.training.mixture import check_label
from agentrl_jax.training.task_source import (
    EnvironmentSpec,
    TaskIterator,
    TaskSource,
)
from agentrl_jax.workers.pool import Task

TASK_FIELDS = ("environment", "options", "reset_options", "seed")


@dataclass
class TaskFile(TaskSource):
    """A task for each record: options for its environment, and perhaps a seed.

    A record may hold

        {"environment": "maths", "options": {...}, "reset_options": {...}, "seed": 3}

    each field optional, or any fields that `options` and `reset_options` map to options. Records
    never name code: "environment" is a label of `environments`. Without a seed a task has one that
    follows from the run's and the record's number. Epochs are shuffled differently; each process
    reads the records of its own tasks alone; a run resumes at the exact record.

    Args:
        path: a .jsonl, .parquet or .arrow file, a dataset folder of Hugging Face, or one that
            `tensorflow_datasets` prepared as ArrayRecord files (`storage.record_files`).
        split: of a folder.
        environments: by label; empty: all tasks are of the experiment's environment.
        options: option of the constructor -> the record's field that holds its value.
        reset_options: option of `reset` -> the record's field.
        shuffle: off: every epoch is in the order of the file.
    """

    path: str
    split: str = "train"
    environments: Mapping[str, EnvironmentSpec] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    reset_options: Mapping[str, str] = field(default_factory=dict)
    shuffle: bool = True

    def open(self, seed: int, environment: EnvironmentSpec) -> TaskIterator:
        return TaskFileIterator(self._reader(seed, environment), self.shuffle, seed)

    def fixed_tasks(self, count: int, seed: int, environment: EnvironmentSpec) -> Tasks:
        """The first records of the file."""
        reader = self._reader(seed, environment)
        return LazyTasks(min(count, len(reader.records)), reader.task)

    def labeled_environments(self, environment: EnvironmentSpec) -> dict[str, EnvironmentSpec]:
        return dict(self.environments) or {"": environment}

    def _reader(self, seed: int, environment: EnvironmentSpec) -> "TaskReader":
        for label in self.environments:
            check_label(label)
        records = open_records(Path(self.path), self.split)
        return TaskReader(
            records, self.labeled_environments(environment), self.options, self.reset_options, seed
        )


@dataclass(frozen=True)
class TaskReader:
    """Makes tasks of records."""

    records: RecordSource
    environments: Mapping[str, EnvironmentSpec]
    options: Mapping[str, str]
    reset_options: Mapping[str, str]
    seed: int

    def task(self, index: int) -> Task:
        """The task of a record; UserError where it describes none."""
        record, location = self.records[index], self.records.location(index)
        self._check_names(record, location)
        label = self._label(record, location)
        environment = self.environments[label]
        reset_options = self._options(record, "reset_options", self.reset_options, location)
        return Task(
            environment.name,
            self._seed(record, index, location),
            {
                **environment.options,
                **self._options(record, "options", self.options, location),
            },
            reset_options or None,
            label=label,
            record=f"record{index}",
        )

    def _check_names(self, record: Record, location: str) -> None:
        unknown = sorted(record.keys() - {*TASK_FIELDS})
        if unknown and not (self.options or self.reset_options):
            raise UserError(
                f"{location}: a task has no field {unknown[0]!r}, only {', '.join(TASK_FIELDS)}: "
                "map other fields to options with TaskFile(options=..., reset_options=...)"
            )

    def _label(self, record: Record, location: str) -> str:
        labels = list(self.environments)
        label = record.get("environment", labels[0] if len(labels) == 1 else None)
        if label not in labels:
            raise UserError(
                f'{location}: the field "environment" is {label!r} and must be one of {labels}, '
                "the labels of TaskFile's environments"
            )
        return label

    def _options(
        self, record: Record, name: str, mapped: Mapping[str, str], location: str
    ) -> dict[str, Any]:
        """The record's own options, and those that other fields are mapped to."""
        options = record.get(name) or {}
        if not isinstance(options, dict):
            raise UserError(
                f"{location}: the field {name!r} must be an object, not {options!r:.50}"
            )
        if missing := [column for column in mapped.values() if column not in record]:
            raise UserError(
                f"{location}: there is no field {missing[0]!r}, which TaskFile maps to an option; "
                f"there are {', '.join(record)}"
            )
        return {**options, **{option: record[column] for option, column in mapped.items()}}

    def _seed(self, record: Record, index: int, location: str) -> int:
        seed = record.get("seed")
        if seed is None:
            return seed_of(self.seed, 6, index)
        if type(seed) is not int or seed < 0:
            raise UserError(f'{location}: the field "seed" must be an integer from 0, not {seed!r}')
        return seed


class TaskFileIterator(TaskIterator):
    """Endless epochs; the state is the number of tasks drawn so far."""

    def __init__(self, reader: TaskReader, shuffle: bool, seed: int) -> None:
        indices = grain.MapDataset.range(len(reader.records)).seed(seed_of(seed, 6))
        self._data: Any = (indices.shuffle() if shuffle else indices).repeat().map(reader.task)
        self._epoch_size, self._position = len(reader.records), 0

    def draw(self, step: int, round_index: int, count: int) -> Tasks:
        start, self._position = self._position, self._position + count
        return LazyTasks(count, lambda i: self._data[start + i])

    def metrics(self) -> dict[str, float]:
        return {"epoch": self._position / self._epoch_size}

    def state(self) -> Any:
        return self._position

    def load(self, state: Any) -> None:
        self._position = state
