"""Group filters (slot `filter`): (groups) -> groups, in their order.

Most filters look at each group alone. Those that compare groups with each other derive from
`CrossGroupFilter`, so that several processes, each with some of the groups, keep exactly the groups
that one process with all of them would (`apply_filter`).
"""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.advantages.trajectory_checks import TrajectoryPredicate
from agentrl_jax.algorithms.experience.trajectory_scores import (
    TrajectoryScore,
    group_scores,
    nonempty_trajectories,
    oldest_version,
    success,
    total_reward,
)
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.trajectories import Group

GroupFilter = Callable[[Sequence[Group]], list[Group]]


def _score_std(group: Group, score: TrajectoryScore, ddof: int) -> float:
    """Standard deviation of the scores; 0 for a group of one, exactly 0 for equal scores."""
    scores = group_scores(group, score)
    return 0.0 if len(scores) < 2 or np.ptp(scores) == 0 else float(scores.std(ddof=ddof))


@dataclass
class MinScoreStd:
    """Groups whose scores' standard deviation is above a threshold.

    SimpleTIR drops groups below 1e-3 (arXiv 2509.02479). UI-S1's released code (2509.11543) uses
    .3 with the population deviation (`ddof=0`) of `DiscountedReturn(.5)` and keeps groups of one;
    its paper uses the deviation of the advantage.
    """

    threshold: float
    score: TrajectoryScore = total_reward
    ddof: int = 1
    keep_singletons: bool = False

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [group for group in groups if self._keeps(group)]

    def _keeps(self, group: Group) -> bool:
        is_singleton = len(nonempty_trajectories(group)) == 1
        return (is_singleton and self.keep_singletons) or (
            _score_std(group, self.score, self.ddof) > self.threshold
        )


class CrossGroupFilter:
    """Base class of filters that compare groups: the statistics of each group are plain JSON data,
    and the selection needs nothing else of other processes' groups.
    """

    def group_statistics(self, group: Group) -> Any:
        """The statistics of a group that `select` compares."""
        raise NotImplementedError

    def select(
        self, groups: Sequence[Group], indices: Sequence[int], all_statistics: Sequence[Any]
    ) -> list[Group | None]:
        """Each of `groups`, possibly with fewer members, or None where it is dropped.

        `all_statistics` are those of all processes' groups, `indices` the positions of `groups`
        among them.
        """
        raise NotImplementedError

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        statistics = [self.group_statistics(group) for group in groups]
        selected = self.select(groups, range(len(groups)), statistics)
        return [group for group in selected if group is not None]


def apply_filter(
    group_filter: GroupFilter,
    process_group: ProcessGroup,
    indexed_groups: Sequence[tuple[int, Group]],
) -> list[tuple[int, Group]]:
    """This process's groups that a filter keeps, given with their indices among those of all
    processes.
    """
    if isinstance(group_filter, FilterChain):
        for link in group_filter.filters:
            indexed_groups = apply_filter(link, process_group, indexed_groups)
        return list(indexed_groups)
    if not isinstance(group_filter, CrossGroupFilter):
        return [
            (index, filtered)
            for index, group in indexed_groups
            for filtered in group_filter([group])
        ]
    gathered = process_group.all_gather(
        "group statistics of a filter",
        [[index, group_filter.group_statistics(group)] for index, group in indexed_groups],
    )
    indexed_statistics = sorted((index, value) for part in gathered for index, value in part)
    rank = {index: i for i, (index, _) in enumerate(indexed_statistics)}
    selected = group_filter.select(
        [group for _, group in indexed_groups],
        [rank[index] for index, _ in indexed_groups],
        [statistics for _, statistics in indexed_statistics],
    )
    return [
        (index, group) for (index, _), group in zip(indexed_groups, selected) if group is not None
    ]


@dataclass
class TopScoreStd(CrossGroupFilter):
    """The `fraction` of groups whose scores' standard deviation is largest, rounded down, at least
    one; of equal ones the earlier.

    UFO .25 (arXiv 2507.14295), SPEAR .75 (2509.22601).
    """

    fraction: float
    score: TrajectoryScore = total_reward

    def group_statistics(self, group: Group) -> float:
        return _score_std(group, self.score, 1)

    def select(
        self, groups: Sequence[Group], indices: Sequence[int], all_statistics: Sequence[float]
    ) -> list[Group | None]:
        count = max(1, int(np.floor(self.fraction * len(all_statistics) + 1e-9)))
        best = set(
            np.argsort(-np.asarray(all_statistics, np.float64), kind="stable")[:count].tolist()
        )
        return [group if i in best else None for i, group in zip(indices, groups)]


@dataclass
class AccuracyBand:
    """Groups whose mean score lies in a band. DAPO: above 0 and below 1 (both ends excluded);
    SimpleTIR: .1 to .9; DART: 0 to below 1.
    """

    low: float
    high: float
    include_low: bool = True
    include_high: bool = True
    score: TrajectoryScore = success

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [
            group
            for group in groups
            if nonempty_trajectories(group)
            and self._contains(float(group_scores(group, self.score).mean()))
        ]

    def _contains(self, mean: float) -> bool:
        above = mean >= self.low if self.include_low else mean > self.low
        return above and (mean <= self.high if self.include_high else mean < self.high)


@dataclass
class BalancedSubsample:
    """Each group reduced to `size` trajectories at random, with a success and a failure among them
    where it has both (DART).

    The draw depends only on the seed, the task and the newest of the members' oldest versions.
    """

    size: int
    seed: int

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [self._subsample(group) for group in groups]

    def _subsample(self, group: Group) -> Group:
        members = nonempty_trajectories(group)
        if len(members) <= self.size:
            return group
        version = max(0, *(oldest_version(trajectory) for trajectory in members))
        order = (
            np.random.default_rng([self.seed, zlib.crc32(group.task.encode()), version])
            .permutation(len(members))
            .tolist()
        )
        solved = [succeeded(trajectory) for trajectory in members]
        first = [next((i for i in order if solved[i] == value), None) for value in (True, False)]
        sample = [i for i in first if i is not None][: self.size]
        sample += [i for i in order if i not in sample][: self.size - len(sample)]
        return dataclasses.replace(group, trajectories=tuple(members[i] for i in sorted(sample)))


@dataclass
class MinValidTrajectories:
    """Groups with at least `min_count` trajectories without any of these faults; faulty members
    stay (SimpleTIR: 4 that are not overlong).
    """

    min_count: int
    faults: Sequence[TrajectoryPredicate]

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [group for group in groups if self._num_valid(group) >= self.min_count]

    def _num_valid(self, group: Group) -> int:
        return sum(not any(fault(t) for fault in self.faults) for t in nonempty_trajectories(group))


@dataclass
class DropFaultyTrajectories:
    """Drops trajectories with one of these faults, and groups that have none left (SPEAR's base:
    void, repetitive, ...).
    """

    faults: Sequence[TrajectoryPredicate]

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        filtered = (
            _filter_trajectories(group, lambda t: not any(fault(t) for fault in self.faults))
            for group in groups
        )
        return [group for group in filtered if group is not None]


@dataclass
class VersionWindow(CrossGroupFilter):
    """Trajectories whose oldest version is among the newest `width` such versions of these groups;
    groups that have none left are dropped (DART: 2).
    """

    width: int = 2

    def group_statistics(self, group: Group) -> list[int]:
        return sorted({oldest_version(t) for t in nonempty_trajectories(group)})

    def select(
        self, groups: Sequence[Group], indices: Sequence[int], all_statistics: Sequence[list[int]]
    ) -> list[Group | None]:
        allowed = set(
            sorted({version for versions in all_statistics for version in versions})[-self.width :]
        )
        return [
            _filter_trajectories(group, lambda t: oldest_version(t) in allowed) for group in groups
        ]


@dataclass
class FilterChain:
    """Several filters in order."""

    filters: Sequence[GroupFilter]

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        filtered = list(groups)
        for group_filter in self.filters:
            filtered = group_filter(filtered)
        return filtered


def _filter_trajectories(group: Group, predicate: TrajectoryPredicate) -> Group | None:
    """The group reduced to the trajectories for which `predicate` is true; None without any."""
    left = tuple(trajectory for trajectory in nonempty_trajectories(group) if predicate(trajectory))
    return dataclasses.replace(group, trajectories=left) if left else None
