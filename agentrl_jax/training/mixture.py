"""`Mixture`: tasks of several environments in one run."""

import copy
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    round_key,
)
from agentrl_jax.workers.pool import Task

Weight = int | float | Callable[[int], float]  # a number, or a schedule of the step


@dataclass
class Mixture(TaskSource):
    """Each step's tasks are divided among the members by their weights.

    Of `count` tasks a member with the fraction p of all weight has count x p, rounded up or down at
    random, in random order. A member's tasks carry its label in their names, metrics
    (`rollout/<label>/...`) and statistics (`environment_of_trajectory`).

    Args:
        members: by label; an `EnvironmentSpec`, a `TaskSet` or a `TaskFile` of one environment.
        weights: a number, or a schedule of the step, for each label; empty: equal weights.
        sampler: draws the members by measured success in place of weights
            (`schedules.SuccessRateSampler`): a curriculum over environments.
    """

    members: Mapping[str, TaskSource]
    weights: Mapping[str, Weight] = field(default_factory=dict)
    sampler: TaskSampler | None = None

    @property
    def learns(self) -> bool:
        return self.sampler is not None or any(x.learns for x in self.members.values())

    def open(self, seed: int, environment: EnvironmentSpec) -> TaskIterator:
        self._check(environment)
        members = {label: member.open(seed, environment) for label, member in self.members.items()}
        return MixtureIterator(members, self.weights, copy.deepcopy(self.sampler), seed)

    def fixed_tasks(self, count: int, seed: int, environment: EnvironmentSpec) -> Tasks:
        """An equal number of each member's."""
        each = -(-count // max(len(self.members), 1))
        parts = {
            label: member.fixed_tasks(each, seed, environment)
            for label, member in self.members.items()
        }
        order = [(label, i) for i in range(each) for label, part in parts.items() if i < len(part)]
        return _labeled_tasks(parts, order[:count])

    def labeled_environments(self, environment: EnvironmentSpec) -> dict[str, EnvironmentSpec]:
        self._check(environment)
        return {
            label: member.labeled_environments(environment)[""]
            for label, member in self.members.items()
        }

    def _check(self, environment: EnvironmentSpec) -> None:
        """Raises UserError where members, weights and sampler do not go together."""
        for label, member in self.members.items():
            check_label(label)
            if set(member.labeled_environments(environment)) != {""}:
                raise UserError(
                    f"the member {label!r} of a mixture has several environments: "
                    "make each of them a member"
                )
        if not self.members or (self.weights and set(self.weights) != set(self.members)):
            raise UserError(
                f"a mixture needs a weight for each of its members {sorted(self.members)}, or "
                f"none, not for {sorted(self.weights)}"
            )
        if self.weights and self.sampler is not None:
            raise UserError("a mixture has weights or a sampler, which replaces them, not both")


RESERVED_LABELS = ("reward", "stopped")  # rollout/reward/<part>, rollout/stopped/<reason>


def check_label(label: str) -> None:
    """Raises UserError where an environment cannot be labeled so."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", label) or label in RESERVED_LABELS:
        raise UserError(
            f"{label!r} is no label of an environment, which names metrics and files: "
            f"use letters, digits, and _ . -, and none of {', '.join(RESERVED_LABELS)}"
        )


class MixtureIterator(TaskIterator):
    """Draws a member for each task, and then the members' tasks."""

    def __init__(
        self,
        members: Mapping[str, TaskIterator],
        weights: Mapping[str, Weight],
        sampler: TaskSampler | None,
        seed: int,
    ) -> None:
        """As `Mixture`, whose members are open."""
        self._members, self._weights, self._sampler = members, weights, sampler
        self._seed = seed
        self._indices: list[int] = []  # the last draw's members

    def draw(self, step: int, round_index: int, count: int) -> Tasks:
        rng = np.random.default_rng(seed_of(self._seed, 5, *round_key(step, round_index)))
        self._indices = (
            systematic_sample(self._weights_at(step), count, rng)
            if self._sampler is None
            else self._sampler.sample(len(self._members), count, rng)
        )
        parts = {
            label: member.draw(step, round_index, self._indices.count(m))
            for m, (label, member) in enumerate(self._members.items())
        }
        labels = list(self._members)
        order = [(labels[m], self._indices[:i].count(m)) for i, m in enumerate(self._indices)]
        return _labeled_tasks(parts, order)

    def _weights_at(self, step: int) -> np.ndarray:
        """The weights of a step, [members]. Raises UserError where none is above 0."""
        weights = [self._weights.get(label, 1.0) for label in self._members]
        values = np.array([w(step) if callable(w) else w for w in weights], np.float64)
        if not np.isfinite(values).all() or (values < 0).any() or not values.any():
            raise UserError(
                f"the weights of a mixture are at least 0 and not all 0; at step {step} they are "
                f"{dict(zip(self._members, values.tolist()))}"
            )
        return values

    def observe(self, success_rates: Sequence[float | None]) -> None:
        for m, member in enumerate(self._members.values()):
            member.observe([rate for i, rate in zip(self._indices, success_rates) if i == m])
        if self._sampler is not None:
            observed = [(m, x) for m, x in zip(self._indices, success_rates) if x is not None]
            self._sampler.observe([m for m, _ in observed], [rate for _, rate in observed])

    def metrics(self) -> dict[str, float]:
        """The fraction of the last draw that is each member's, and the members' metrics."""
        metrics, count = {}, max(len(self._indices), 1)
        for m, (label, member) in enumerate(self._members.items()):
            metrics[f"{label}/fraction"] = self._indices.count(m) / count
            metrics |= {f"{label}/{name}": value for name, value in member.metrics().items()}
        return metrics

    def state(self) -> Any:
        members = {label: member.state() for label, member in self._members.items()}
        states = {
            "members": {label: state for label, state in members.items() if state is not None},
            "sampler": None if self._sampler is None else self._sampler.state(),
        }
        return {name: state for name, state in states.items() if state} or None

    def load(self, state: Any) -> None:
        for label, member_state in state.get("members", {}).items():
            self._members[label].load(member_state)
        if self._sampler is not None and "sampler" in state:
            self._sampler.load(state["sampler"])


def systematic_sample(weights: np.ndarray, count: int, rng: np.random.Generator) -> list[int]:
    """`count` indices in random order, of which index i has count x p_i, rounded up or down.

    p_i = w_i / sum(w); the expected number is exact. One uniform number shifts a comb of `count`
    teeth over the cumulative weights.
    """
    ends = np.cumsum(weights)
    comb = (rng.random() + np.arange(count)) / count
    return rng.permutation(np.searchsorted(ends / ends[-1], comb, side="right")).tolist()


def _labeled_tasks(parts: Mapping[str, Tasks], order: Sequence[tuple[str, int]]) -> Tasks:
    """The tasks (label, index in its part), with their labels."""

    def make_task(i: int) -> Task:
        label, index = order[i]
        return dataclasses.replace(parts[label][index], label=label)

    return LazyTasks(len(order), make_task)
