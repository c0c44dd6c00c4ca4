"""Filters (slot F): (groups) -> groups. What is left is in its old order; what was dropped can be counted from the lengths."""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.facts import succeeded
from agentrl_jax.algorithms.masks import Deviations, Quantiles
from agentrl_jax.algorithms.quality import Fault
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


@dataclass
class TopStd:
    """The `share` of groups whose scores' standard deviation is largest, rounded down, at least one; the earlier of equal ones.

    UFO .25 (arXiv 2507.14295), SPEAR .75 (2509.22601).
    """

    share: float
    score: Score = total_reward

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        if not groups:
            return []
        std = np.array([_std(group, self.score, 1) for group in groups])
        count = max(1, int(np.floor(self.share * len(groups) + 1e-9)))
        return [groups[i] for i in sorted(np.argsort(-std, kind="stable")[:count].tolist())]


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
        return _keeping(groups, lambda t: not any(fault(t) for fault in self.faults))


def oldest_version(trajectory: Trajectory) -> int:
    """The oldest weights that wrote some of it; -1 where nothing was written."""
    return min((int(call.version.min()) for call in trajectory.calls if len(call.version)), default=-1)


@dataclass
class VersionWindow:
    """Trajectories written by the newest `width` versions of the weights among these groups; groups that have none left go (DART: 2)."""

    width: int = 2

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        versions = sorted({oldest_version(t) for group in groups for t in played(group)})
        allowed = set(versions[-self.width :])
        return _keeping(groups, lambda t: oldest_version(t) in allowed)


@dataclass
class NLLBand:
    """Trajectories whose mean negative log-likelihood under the sampler lies in a band over all groups; empty groups go."""

    band: Quantiles | Deviations

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        written = [t for group in groups for t in group.trajectories if any(len(call.action) for call in t.calls)]
        nll = np.array([-np.concatenate([call.sampler_logp for call in t.calls]).astype(np.float64).mean() for t in written])
        kept = {id(t) for t, good in zip(written, self.band(nll)) if good}
        return _keeping(groups, lambda t: id(t) in kept)


@dataclass
class InTurn:
    """One filter after the other."""

    filters: Sequence[Filter]

    def __call__(self, groups: Sequence[Group]) -> list[Group]:
        kept = list(groups)
        for each in self.filters:
            kept = each(kept)
        return kept


def _keeping(groups: Sequence[Group], keep: Fault) -> list[Group]:
    left = [dataclasses.replace(g, trajectories=tuple(t for t in played(g) if keep(t))) for g in groups]
    return [group for group in left if group.trajectories]
