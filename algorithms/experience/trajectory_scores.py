"""Scores of trajectories, by which filters and replay compare them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.trajectories import Group, Trajectory

TrajectoryScore = Callable[[Trajectory], float]


def total_reward(trajectory: Trajectory) -> float:
    """The undiscounted return."""
    return trajectory.total_reward


def success(trajectory: Trajectory) -> float:
    """1 or 0; raises UserError where the trajectory has no outcome."""
    return float(succeeded(trajectory))


@dataclass
class DiscountedReturn:
    """sum_t gamma^t r_t, the return at turn 0 (UI-S1's released filter: gamma .5)."""

    gamma: float

    def __call__(self, trajectory: Trajectory) -> float:
        return float(sum(self.gamma**t * turn.reward for t, turn in enumerate(trajectory.turns)))


def nonempty_trajectories(group: Group) -> tuple[Trajectory, ...]:
    """The trajectories that have turns; the others do not count."""
    return tuple(trajectory for trajectory in group.trajectories if trajectory.turns)


def group_scores(group: Group, score: TrajectoryScore) -> np.ndarray:
    """The scores of the trajectories that have turns, float64. Raises ValueError where one is not
    finite.
    """
    scores = np.array(
        [score(trajectory) for trajectory in nonempty_trajectories(group)], np.float64
    )
    if not np.isfinite(scores).all():
        raise ValueError(
            f"a score of {group.task!r} is not finite: the environment must return a number"
        )
    return scores


def oldest_version(trajectory: Trajectory) -> int:
    """The oldest version of the weights that sampled some of it; -1 without any sampled token."""
    return min(
        (int(call.version.min()) for call in trajectory.calls if len(call.version)), default=-1
    )
