"""A recorded trajectory with what a step of training used of it: `TrajectoryRecord`."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from agentrl_jax.trajectories import Trajectory, sum_parts


@dataclass(frozen=True, eq=False)
class CallTraining:
    """What an update used for the action tokens of a call; every array is float32 [action tokens].

    None where the algorithm did not compute it. Forced tokens have 0 everywhere.
    """

    weight: np.ndarray  # of the token in the loss; 0: not trained
    advantage: np.ndarray  # that the loss was given, with the importance weight
    logp: np.ndarray | None = None  # the learner's, before the update
    ref_logp: np.ndarray | None = None
    value: np.ndarray | None = None  # the critic's, of the state before the token
    value_target: np.ndarray | None = None  # the critic's target: the return, as it was estimated
    importance_weight: np.ndarray | None = None  # sampler against learner


@dataclass(frozen=True, eq=False)
class UtteranceTraining:
    """An utterance that an update sampled in the state of a turn, and trained."""

    action: np.ndarray  # int32 [action tokens]
    training: CallTraining


@dataclass(frozen=True, eq=False)
class TurnTraining:
    """A turn as an algorithm saw it."""

    reward: float  # after reward transforms
    rewards: Mapping[str, float]  # its named parts
    calls: tuple[CallTraining | None, ...]  # of the turn's calls; None: no token was trained
    utterances: tuple[UtteranceTraining, ...] = ()  # in the place of its action


@dataclass(frozen=True, eq=False)
class TrajectoryTraining:
    """What an algorithm used of a trajectory, turn by turn."""

    turns: tuple[TurnTraining, ...]

    @property
    def total_reward(self) -> float:
        """The undiscounted return after reward transforms."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def reward_parts(self) -> dict[str, float]:
        """The named parts of the turns' rewards after transforms, each summed over the episode."""
        return sum_parts(turn.rewards for turn in self.turns)


@dataclass(frozen=True, eq=False)
class TrajectoryRecord:
    """A line of a trajectory log."""

    phase: str
    step: int
    trajectory: Trajectory
    training: TrajectoryTraining | None = None  # None: no algorithm was given it
