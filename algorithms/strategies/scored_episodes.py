"""`ScoredEpisodes`: rollouts whose rewards, or whose acceptance, come from models of the run."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrl_jax.algorithms.advantages.info_fields import add_reward_part
from agentrl_jax.algorithms.strategies.episode_scorers import EpisodeScorer, TurnScores
from agentrl_jax.algorithms.strategies.wrapper import StrategyWrapper
from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.rollout.event_loop_thread import gather_or_cancel
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task

ATTEMPTS = 2  # at a score, each with random numbers of its own


async def score_group(
    scorers: Sequence[EpisodeScorer], group: Group, task: Task, runtime: Runtime, key: RandomKey
) -> tuple[Group, list[list[TurnScores]]]:
    """The trajectories that all scorers scored, and the scores of each by every scorer.

    A scorer that fails is counted in `runtime.failures` and asked once more; if it fails again, the
    trajectory is dropped and counted. All are scored concurrently. Those without turns are left
    out.
    """

    async def score(scorer: EpisodeScorer, trajectory: Trajectory, key: RandomKey) -> TurnScores:
        for attempt in range(ATTEMPTS):
            try:
                return await scorer(trajectory, runtime, (*key, attempt))
            except EnvironmentFailure as failure:
                runtime.failures.add(failure, task)
        return {}

    trajectories = [trajectory for trajectory in group.trajectories if trajectory.turns]
    scores = await gather_or_cancel(
        [
            gather_or_cancel([score(s, t, (*key, i, j)) for j, s in enumerate(scorers)])
            for i, t in enumerate(trajectories)
        ]
    )
    is_scored = [all(row) for row in scores]
    dropped = [t for t, scored in zip(trajectories, is_scored) if not scored]
    for _ in dropped:
        runtime.failures.add_dropped(task)
    remaining = dataclasses.replace(
        group,
        trajectories=tuple(t for t, scored in zip(trajectories, is_scored) if scored),
        num_dropped=group.num_dropped + len(dropped),
        discarded_turns=group.discarded_turns + sum(len(t.turns) for t in dropped),
    )
    return remaining, [row for row, scored in zip(scores, is_scored) if scored]


def keep_trajectories(group: Group, is_kept: Sequence[bool]) -> Group:
    """The group with some of its trajectories; the turns of the others count as discarded."""
    trajectories = tuple(t for t, keep in zip(group.trajectories, is_kept, strict=True) if keep)
    discarded = sum(len(t.turns) for t, keep in zip(group.trajectories, is_kept) if not keep)
    return dataclasses.replace(
        group, trajectories=trajectories, discarded_turns=group.discarded_turns + discarded
    )


def add_scores(trajectory: Trajectory, name: str, scores: TurnScores) -> Trajectory:
    """The trajectory with a reward part at the turns that have a score."""
    turns = (
        add_reward_part(turn, name, scores[i]) if i in scores else turn
        for i, turn in enumerate(trajectory.turns)
    )
    return trajectory.replace(turns=tuple(turns))


@dataclass
class ScoredEpisodes(StrategyWrapper):
    """Adds the scores of models to the rewards of the strategy's episodes, as parts by name.

    r_t += sum_i s_i,t. Which parts a method trains on is its slot `rewards`
    (`rewards.WeightedParts`): the environment's own parts stay on record beside the models'.
    Episodes of other groups are played meanwhile. An episode that a model fails to score is dropped
    and counted, as one whose environment failed; its reward is never 0.
    """

    scorers: Mapping[str, EpisodeScorer] = field(default_factory=dict)  # by the part's name
    # The scorer whose score of at least 1 is success; empty: the environment says what is.
    success: str = field(default="", metadata=OMITTED_AT_DEFAULT)

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if not self.scorers or (self.success and self.success not in self.scorers):
            raise UserError(
                "ScoredEpisodes needs scorers, and success names one of them: name some, or leave "
                "it out"
            )
        group = await self.strategy.collect(task, runtime, key)
        group, scores = await score_group([*self.scorers.values()], group, task, runtime, key)
        trajectories = []
        for trajectory, row in zip(group.trajectories, scores):
            for name, part in zip(self.scorers, row):
                trajectory = add_scores(trajectory, name, part)
                if name == self.success:
                    trajectory = trajectory.replace(success=sum(part.values()) >= 1)
            trajectories.append(trajectory)
        return dataclasses.replace(group, trajectories=tuple(trajectories))


@dataclass
class AcceptedEpisodes(StrategyWrapper):
    """Keeps the strategy's episodes whose score is at least `threshold`: a filter that asks.

    The turns of rejected episodes count in `Group.discarded_turns`.
    """

    scorer: EpisodeScorer | None = None
    threshold: float = 0.5

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if self.scorer is None:
            raise UserError("AcceptedEpisodes needs a scorer: give it one, or leave it out")
        group = await self.strategy.collect(task, runtime, key)
        group, scores = await score_group([self.scorer], group, task, runtime, key)
        is_accepted = [sum(score.values()) >= self.threshold for (score,) in scores]
        return keep_trajectories(group, is_accepted)
