"""Filters (slot F): (groups) -> groups. What is left is in its old order; what was dropped can be counted from the lengths.

Most judge each group alone. Those that compare groups with each other are `Comparing`, so that several processes, each with some
of the groups, can keep what one process with all of them would (`filtered`).
"""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.algorithms.facts import succeeded
from agentrl_jax.algorithms.masks import Deviations, Quantiles
from agentrl_jax.algorithms.quality import Fault
from agentrl_jax.hosts import Hosts
from agentrl_jax.trajectories import Group, Trajectory

Score = Callable[[Trajectory], float]
Filter = Callable[[Sequence[Group]], list[Group]]


def total_reward(trajectory: Trajectory) -> float:
    """The undiscounted return."""
    return trajectory.total_reward


def success(trajectory: Trajectory) -> float:
    """1 or 0; raises UserError where the environment does not say."""
    return float(succeeded(trajectory))


@dataclass
class DiscountedReturn:
    """sum_t gamma^t r_t, the return at step 0 (UI-S1's released filter: gamma .5)."""

    gamma: float

    def __call__(self, trajectory: Trajectory) -> float:
        return float(sum(self.gamma**t * turn.reward for t, turn in enumerate(trajectory.turns)))


def played(group: Group) -> tuple[Trajectory, ...]:
    """Trajectories without turns do not count."""
    return tuple(trajectory for trajectory in group.trajectories if trajectory.turns)


def scores_of(group: Group, score: Score) -> np.ndarray:
    """The scores of the trajectories that have turns, float64. Raises ValueError where one is not finite."""
    scores = np.array([score(trajectory) for trajectory in played(group)], np.float64)
    if not np.isfinite(scores).all():
        raise ValueError(f"a score of {group.task!r} is not finite: the environment must return a number")
    return scores


def _std(group: Group, score: Score, ddof: int) -> float:
    """0 for a group of one. Equal scores have exactly 0."""
    scores = scores_of(group, score)
    return 0.0 if len(scores) < 2 or np.ptp(scores) == 0 else float(scores.std(ddof=ddof))


@dataclass
class StdAbove:
    """Groups whose scores' standard deviation is above a threshold.

    SimpleTIR drops groups below 1e-3 (arXiv 2509.02479). UI-S1's released code (2509.11543) takes .3, the population's
    deviation (`ddof=0`) of `DiscountedReturn(.5)`, and keeps groups of one; its paper takes the deviation of the advantage.
    """

    threshold: float
    score: Score = total_reward
    ddof: int = 1
    keep_alone: bool = False

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [g for g in groups if (len(played(g)) == 1 and self.keep_alone) or _std(g, self.score, self.ddof) > self.threshold]


class Comparing:
    """A filter that compares groups: what it must know of each is plain JSON data, and the choice needs no more of the others."""

    def facts(self, group: Group) -> Any:
        """What the choice needs to know of a group."""
        raise NotImplementedError

    def choose(self, groups: Sequence[Group], own: Sequence[int], everyone: Sequence[Any]) -> list[Group | None]:
        """What becomes of `groups`, of which the facts are `everyone`'s at `own`; None: dropped."""
        raise NotImplementedError

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        chosen = self.choose(groups, range(len(groups)), [self.facts(group) for group in groups])
        return [group for group in chosen if group is not None]


def filtered(keep: Filter, hosts: Hosts, placed: Sequence[tuple[int, Group]]) -> list[tuple[int, Group]]:
    """What a filter keeps of all processes' groups, given this one's with their places among all."""
    if isinstance(keep, InTurn):
        for each in keep.filters:
            placed = filtered(each, hosts, placed)
        return list(placed)
    if not isinstance(keep, Comparing):  # each group for itself
        return [(place, kept) for place, group in placed for kept in keep([group])]
    said = hosts.gather("facts of a filter", [[place, keep.facts(group)] for place, group in placed])
    everyone = sorted((place, fact) for part in said for place, fact in part)
    rank = {place: i for i, (place, _) in enumerate(everyone)}
    chosen = keep.choose([group for _, group in placed], [rank[place] for place, _ in placed], [fact for _, fact in everyone])
    return [(place, group) for (place, _), group in zip(placed, chosen) if group is not None]


@dataclass
class TopStd(Comparing):
    """The `share` of groups whose scores' standard deviation is largest, rounded down, at least one; the earlier of equal ones.

    UFO .25 (arXiv 2507.14295), SPEAR .75 (2509.22601).
    """

    share: float
    score: Score = total_reward

    def facts(self, group: Group) -> float:
        return _std(group, self.score, 1)

    def choose(self, groups: Sequence[Group], own: Sequence[int], everyone: Sequence[float]) -> list[Group | None]:
        count = max(1, int(np.floor(self.share * len(everyone) + 1e-9)))
        best = set(np.argsort(-np.asarray(everyone, np.float64), kind="stable")[:count].tolist())
        return [group if i in best else None for i, group in zip(own, groups)]


@dataclass
class AccuracyBand:
    """Groups whose mean score lies in a band. DAPO: above 0 and below 1 (both ends left out); SimpleTIR: .1 to .9; DART: 0 to below 1."""

    low: float
    high: float
    include_low: bool = True
    include_high: bool = True
    score: Score = success

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [group for group in groups if played(group) and self._holds(float(scores_of(group, self.score).mean()))]

    def _holds(self, mean: float) -> bool:
        above = mean >= self.low if self.include_low else mean > self.low
        return above and (mean <= self.high if self.include_high else mean < self.high)


@dataclass
class BalancedCrop:
    """Each group cut to `size` trajectories at random, with a success and a failure among them where it has both (DART).

    What is drawn depends on the seed, the task and the newest weights in the group alone.
    """

    size: int
    seed: int

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [self._cropped(group) for group in groups]

    def _cropped(self, group: Group) -> Group:
        members = played(group)
        if len(members) <= self.size:
            return group
        version = max(0, *(oldest_version(trajectory) for trajectory in members))
        order = np.random.default_rng([self.seed, zlib.crc32(group.task.encode()), version]).permutation(len(members)).tolist()
        solved = [succeeded(trajectory) for trajectory in members]
        first = [next((i for i in order if solved[i] == kind), None) for kind in (True, False)]
        chosen = [i for i in first if i is not None][: self.size]
        chosen += [i for i in order if i not in chosen][: self.size - len(chosen)]
        return dataclasses.replace(group, trajectories=tuple(members[i] for i in sorted(chosen)))


@dataclass
class MinimumValid:
    """Groups with at least `count` trajectories that have none of these faults; all their members stay (SimpleTIR: 4 not overlong)."""

    count: int
    faults: Sequence[Fault]

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        return [g for g in groups if sum(not any(fault(t) for fault in self.faults) for t in played(g)) >= self.count]


@dataclass
class Quality:
    """Trajectories with one of these faults are left out, and groups that have none left (SPEAR's base: void, repetitive, ...)."""

    faults: Sequence[Fault]

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        kept = (_keeping(group, lambda t: not any(fault(t) for fault in self.faults)) for group in groups)
        return [group for group in kept if group is not None]


def oldest_version(trajectory: Trajectory) -> int:
    """The oldest weights that wrote some of it; -1 where nothing was written."""
    return min((int(call.version.min()) for call in trajectory.calls if len(call.version)), default=-1)


@dataclass
class VersionWindow(Comparing):
    """Trajectories written by the newest `width` versions of the weights among these groups; groups that have none left go (DART: 2)."""

    width: int = 2

    def facts(self, group: Group) -> list[int]:
        return sorted({oldest_version(t) for t in played(group)})

    def choose(self, groups: Sequence[Group], own: Sequence[int], everyone: Sequence[list[int]]) -> list[Group | None]:
        allowed = set(sorted({version for versions in everyone for version in versions})[-self.width :])
        return [_keeping(group, lambda t: oldest_version(t) in allowed) for group in groups]


@dataclass
class NLLBand(Comparing):
    """Trajectories whose mean negative log-likelihood under the sampler lies in a band over all groups; empty groups go."""

    band: Quantiles | Deviations

    def facts(self, group: Group) -> list[float]:
        return [_nll(trajectory) for trajectory in played(group) if _written(trajectory)]

    def choose(self, groups: Sequence[Group], own: Sequence[int], everyone: Sequence[list[float]]) -> list[Group | None]:
        nll = np.array([value for values in everyone for value in values])
        allowed = set(nll[self.band(nll)].tolist())
        return [_keeping(group, lambda t: _written(t) and _nll(t) in allowed) for group in groups]


def _written(trajectory: Trajectory) -> bool:
    return any(len(call.action) for call in trajectory.calls)


def _nll(trajectory: Trajectory) -> float:
    return float(-np.concatenate([call.sampler_logp for call in trajectory.calls]).astype(np.float64).mean())


@dataclass
class InTurn:
    """One filter after the other."""

    filters: Sequence[Filter]

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        kept = list(groups)
        for each in self.filters:
            kept = each(kept)
        return kept


def _keeping(group: Group, keep: Fault) -> Group | None:
    """The group with only these trajectories; None where there are none."""
    left = tuple(trajectory for trajectory in played(group) if keep(trajectory))
    return dataclasses.replace(group, trajectories=left) if left else None
