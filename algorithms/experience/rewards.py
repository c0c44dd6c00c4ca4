"""Reward transforms (slot `rewards`): (group, step) -> group with changed rewards and named parts.
The `turn.info` fields that they read are listed in `advantages.info_fields`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.advantages.info_fields import add_reward_part, info_field, succeeded
from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Group, Trajectory, Turn

RewardTransform = Callable[[Group, int], Group]


def map_trajectories(group: Group, fn: Callable[[Trajectory], Trajectory]) -> Group:
    """The group with `fn` applied to every trajectory that has turns."""
    return dataclasses.replace(
        group, trajectories=tuple(fn(t) if t.turns else t for t in group.trajectories)
    )


def map_turns(trajectory: Trajectory, fn: Callable[[Turn], Turn]) -> Trajectory:
    """The trajectory with `fn` applied to every turn."""
    return trajectory.replace(turns=tuple(map(fn, trajectory.turns)))


def add_to_last_turn(trajectory: Trajectory, name: str, value: float) -> Trajectory:
    """The trajectory with `value` added to the last turn's reward as a named part."""
    *earlier, last = trajectory.turns
    return trajectory.replace(turns=(*earlier, add_reward_part(last, name, value)))


def set_reward(turn: Turn, name: str, value: float) -> Turn:
    """The turn with this reward as the only part."""
    return add_reward_part(dataclasses.replace(turn, reward=0.0, rewards={}), name, value)


@dataclass
class RewardChain:
    """Several transforms in order."""

    transforms: Sequence[RewardTransform]

    def __call__(self, group: Group, step: int) -> Group:
        for reward in self.transforms:
            group = reward(group, step)
        return group


@dataclass
class ScheduledReward:
    """The transform that a schedule returns for the step (SCoRe's two stages)."""

    schedule: Callable[[int], RewardTransform]

    def __call__(self, group: Group, step: int) -> Group:
        return self.schedule(step)(group, step)


def _set_outcome(
    trajectory: Trajectory, success_reward: float, failure_reward: float
) -> Trajectory:
    cleared = map_turns(trajectory, lambda turn: set_reward(turn, "outcome", 0.0))
    reward = success_reward if succeeded(trajectory) else failure_reward
    return add_to_last_turn(cleared, "outcome", reward)


@dataclass
class OutcomeReward:
    """`success_reward` on the last turn of a solved episode, `failure_reward` on that of a failed
    one, 0 before. Raises UserError where the outcome is not known.
    """

    success_reward: float = 1.0
    failure_reward: float = 0.0

    def __call__(self, group: Group, step: int) -> Group:
        return map_trajectories(
            group, lambda t: _set_outcome(t, self.success_reward, self.failure_reward)
        )


@dataclass
class AttemptDecay:
    """factor^k for success at attempt k and 0 for failure, in place of all rewards.

    A turn is an attempt, counted from 0 (UFO, arXiv 2507.14295).
    """

    factor: float = 0.5

    def __call__(self, group: Group, step: int) -> Group:
        return map_trajectories(
            group, lambda t: _set_outcome(t, self.factor ** (len(t.turns) - 1), 0.0)
        )


def return_at_last_turn(group: Group, step: int) -> Group:
    """The whole return on the last turn, with its parts: the single reward of A Practitioner's
    Guide (arXiv 2510.01132).
    """

    def with_return_at_end(trajectory: Trajectory) -> Trajectory:
        *earlier, last = (
            dataclasses.replace(turn, reward=0.0, rewards={}) for turn in trajectory.turns
        )
        last = dataclasses.replace(
            last, reward=trajectory.total_reward, rewards=trajectory.reward_parts
        )
        return trajectory.replace(turns=(*earlier, last))

    return map_trajectories(group, with_return_at_end)


@dataclass
class ProgressBonus:
    """alpha (r_k - r_{k-1}) on every attempt but the first; a turn is an attempt (SCoRe, arXiv
    2409.12917: two attempts, alpha 10).
    """

    alpha: float = 10.0

    def __call__(self, group: Group, step: int) -> Group:
        def with_bonus(trajectory: Trajectory) -> Trajectory:
            first, *later = trajectory.turns
            rewarded = (
                add_reward_part(turn, "progress", self.alpha * (turn.reward - before.reward))
                for before, turn in zip(trajectory.turns, later)
            )
            return trajectory.replace(turns=(first, *rewarded))

        return map_trajectories(group, with_bonus)


@dataclass
class SingleTurnReward:
    """The rewards of one turn, counted from 0, and 0 elsewhere (SCoRe's first stage: the second
    attempt's).
    """

    turn_index: int

    def __call__(self, group: Group, step: int) -> Group:
        def with_one_reward(trajectory: Trajectory) -> Trajectory:
            turns = [
                turn if i == self.turn_index else dataclasses.replace(turn, reward=0.0, rewards={})
                for i, turn in enumerate(trajectory.turns)
            ]
            return trajectory.replace(turns=tuple(turns))

        return map_trajectories(group, with_one_reward)


@dataclass
class RewardGate:
    """G-RA (arXiv 2508.10548): a part of the reward counts only where every part of higher priority
    exceeds its threshold.

    R = sum_i R^(i) prod_{j above i} 1[R^(j) > delta_j], R^(j) the part's sum over the episode;
    parts that do not count are removed from every turn's reward. Thresholds of -inf give the plain
    sum. The paper's values are not known. Raises UserError where a turn has a part that is not in
    `priority`, or parts that do not sum to its reward.
    """

    priority: Sequence[str]  # the parts' names, highest priority first
    thresholds: Sequence[float]  # one for each part but the last

    def __call__(self, group: Group, step: int) -> Group:
        if len(self.thresholds) != len(self.priority) - 1:
            raise UserError(
                f"a gate of {len(self.priority)} parts has {len(self.priority) - 1} thresholds, "
                f"not {len(self.thresholds)}"
            )
        return map_trajectories(group, self._apply_gate)

    def _apply_gate(self, trajectory: Trajectory) -> Trajectory:
        for turn in trajectory.turns:
            if unknown := set(turn.rewards) - set(self.priority):
                raise UserError(
                    f"the gate's priority {list(self.priority)} lacks {sorted(unknown)}: name "
                    "every part of the reward"
                )
            if abs(sum(turn.rewards.values()) - turn.reward) > 1e-6 * max(1.0, abs(turn.reward)):
                raise UserError(
                    f"a turn's named parts {dict(turn.rewards)} do not sum to its reward "
                    f"{turn.reward}"
                )
        counted = []
        for name, threshold in zip(self.priority, [*self.thresholds, 0.0]):
            counted.append(name)
            if not sum(turn.rewards.get(name, 0.0) for turn in trajectory.turns) > threshold:
                break

        def gated(turn: Turn) -> Turn:
            parts = {name: value for name, value in turn.rewards.items() if name in counted}
            return dataclasses.replace(turn, reward=float(sum(parts.values())), rewards=parts)

        return map_turns(trajectory, gated)


@dataclass
class WeightedParts:
    """sum_i weight_i R^(i) in place of the reward: the parts that the policy is trained on.

    A part that is not named counts 0 and is only recorded, as the environment's own reward beside
    a reward model's. A turn without a named part has reward 0. Raises UserError where a trajectory
    has none of the parts.
    """

    weights: Mapping[str, float]  # by the part's name

    def __call__(self, group: Group, step: int) -> Group:
        return map_trajectories(group, self._weighted)

    def _weighted(self, trajectory: Trajectory) -> Trajectory:
        parts = trajectory.reward_parts
        if not parts.keys() & self.weights.keys():
            raise UserError(
                f"the reward has the parts {sorted(parts)} and none of {sorted(self.weights)}: "
                "name some of them"
            )

        def weighted(turn: Turn) -> Turn:
            counted = {n: w * turn.rewards[n] for n, w in self.weights.items() if n in turn.rewards}
            return dataclasses.replace(turn, reward=float(sum(counted.values())), rewards=counted)

        return map_turns(trajectory, weighted)


@dataclass
class DistanceReward:
    """1[the agent stopped, distance < radius] scale (1 - distance / radius) on the last turn, in
    place of all rewards.

    ActiveVLN (arXiv 2509.12618): radius 3 m, scale 15.
    """

    radius: float = 3.0
    scale: float = 15.0

    def __call__(self, group: Group, step: int) -> Group:
        def shaped(trajectory: Trajectory) -> Trajectory:
            last = trajectory.turns[-1]
            near = (
                max(0.0, 1.0 - float(info_field(last, "distance")) / self.radius)
                if last.info.get("stopped", False)
                else 0.0
            )
            cleared = map_turns(trajectory, lambda turn: set_reward(turn, "distance", 0.0))
            return add_to_last_turn(cleared, "distance", self.scale * near)

        return map_trajectories(group, shaped)


def dense_rewards(group: Group, step: int) -> Group:
    """Each reward divided by the sum of the positive ones if the episode succeeded, else by the
    task's `full_score` (arXiv 2510.01132).

    A success without negative rewards sums to 1, a failure to at most 1. The released code divides
    by the number of positive rewards, which is their sum where each is 1, as in its games.
    """

    def divided(trajectory: Trajectory) -> Trajectory:
        divisor = (
            sum(max(turn.reward, 0.0) for turn in trajectory.turns) or 1.0
            if succeeded(trajectory)
            else float(info_field(trajectory.turns[-1], "full_score"))
        )
        if divisor <= 0:
            raise UserError(f"a task's full_score must be above 0, not {divisor}")
        return map_turns(
            trajectory,
            lambda turn: dataclasses.replace(
                turn,
                reward=turn.reward / divisor,
                rewards={name: value / divisor for name, value in turn.rewards.items()},
            ),
        )

    return map_trajectories(group, divided)
