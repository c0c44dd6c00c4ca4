"""Reward transforms (slot `rewards`) that penalize faulty turns, repeated answers and overlong
episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agentrl_jax.algorithms.advantages.info_fields import add_reward_part
from agentrl_jax.algorithms.experience.rewards import (
    add_to_last_turn,
    map_trajectories,
    map_turns,
    set_reward,
)
from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Group, Trajectory, Turn


@dataclass
class TurnPenalty:
    """-amount on every turn that `is_faulty`: `is_malformed` (UFO .1), `is_illegal` (EPO .1)."""

    name: str
    amount: float
    is_faulty: Callable[[Turn], bool]

    def __call__(self, group: Group, step: int) -> Group:
        def penalized(turn: Turn) -> Turn:
            if not self.is_faulty(turn):
                return turn
            return add_reward_part(turn, self.name, -self.amount)

        return map_trajectories(group, lambda trajectory: map_turns(trajectory, penalized))


@dataclass
class EpisodePenalty:
    """-amount once, on the last turn, where any turn `is_faulty` (ARPO for GUI, arXiv 2505.16282:
    .5 for a malformed action).
    """

    name: str
    amount: float
    is_faulty: Callable[[Turn], bool]

    def __call__(self, group: Group, step: int) -> Group:
        def penalized(trajectory: Trajectory) -> Trajectory:
            if not any(map(self.is_faulty, trajectory.turns)):
                return trajectory
            return add_to_last_turn(trajectory, self.name, -self.amount)

        return map_trajectories(group, penalized)


@dataclass
class ReplaceRewards:
    """`value` on the last turn as the only reward where any turn `is_faulty` (ARPO, arXiv
    2507.19849: -1; IGPO, 2510.14967: -2).
    """

    name: str
    value: float
    is_faulty: Callable[[Turn], bool]

    def __call__(self, group: Group, step: int) -> Group:
        def replaced(trajectory: Trajectory) -> Trajectory:
            if not any(map(self.is_faulty, trajectory.turns)):
                return trajectory
            cleared = map_turns(trajectory, lambda turn: set_reward(turn, self.name, 0.0))
            return add_to_last_turn(cleared, self.name, self.value)

        return map_trajectories(group, replaced)


@dataclass
class RepeatedAnswerPenalty:
    """-weight (1 - E / T) on the last turn: E distinct among the T answers of the turns; 0 without
    any (UFO, arXiv 2507.14295).
    """

    weight: float = 0.5

    def __call__(self, group: Group, step: int) -> Group:
        def penalized(trajectory: Trajectory) -> Trajectory:
            answers = [
                turn.info["answer"]
                for turn in trajectory.turns
                if turn.info.get("answer") is not None
            ]
            repeated = 1.0 - len(set(answers)) / len(answers) if answers else 0.0
            return add_to_last_turn(trajectory, "repetition", -self.weight * repeated)

        return map_trajectories(group, penalized)


@dataclass
class OverlongPenalty:
    """min(0, -(length - (max_length - buffer)) / buffer x factor) on the last turn; length counts
    sampled tokens (DAPO, arXiv 2503.14476).
    """

    max_length: int
    buffer: int
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.buffer < 1:
            raise UserError("the buffer of an overlong penalty must be at least 1 token")

    def __call__(self, group: Group, step: int) -> Group:
        def penalized(trajectory: Trajectory) -> Trajectory:
            length = sum(len(call.action) for call in trajectory.calls)
            excess = length - (self.max_length - self.buffer)
            return add_to_last_turn(
                trajectory, "overlong", min(0.0, -excess / self.buffer * self.factor)
            )

        return map_trajectories(group, penalized)
