"""`BestOfN`, `MajorityVote`: of several episodes of a task, the one that counts."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.algorithms.strategies.episode_scorers import EpisodeScorer
from agentrl_jax.algorithms.strategies.scored_episodes import (
    keep_trajectories,
    score_group,
)
from agentrl_jax.algorithms.strategies.wrapper import StrategyWrapper
from agentrl_jax.errors import UserError
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task


@dataclass
class BestOfN(StrategyWrapper):
    """The strategy's episode with the highest score, of equal ones the first: argmax_i s_i of n.

    The reward stays that of the environment; the score of the best is in its last turn's
    `info["score"]`. With `YesProbability` it is verifier best-of-n (MARS-SQL, arXiv 2511.01008: 16
    trajectories, P("Yes") averaged over 8 samples of the verifier; here it is read at one token).
    """

    scorer: EpisodeScorer | None = None

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if self.scorer is None:
            raise UserError("BestOfN needs a scorer: give it a verifier")
        group = await self.strategy.collect(task, runtime, key)
        group, scores = await score_group([self.scorer], group, task, runtime, key)
        totals = [sum(score.values()) for (score,) in scores]
        best = int(np.argmax(totals)) if totals else 0
        group = keep_trajectories(group, [i == best for i in range(len(totals))])
        marked = (_with_score(trajectory, totals[best]) for trajectory in group.trajectories)
        return dataclasses.replace(group, trajectories=tuple(marked))


def _with_score(trajectory: Trajectory, score: float) -> Trajectory:
    *earlier, last = trajectory.turns
    last = dataclasses.replace(last, info={**last.info, "score": score})
    return trajectory.replace(turns=(*earlier, last))


def last_answer(trajectory: Trajectory) -> str | None:
    """`info["answer"]` of the last turn where the environment sets it (None: no answer), or else
    the last action.
    """
    last = trajectory.turns[-1]
    return last.info.get("answer", last.action.text.strip())


@dataclass
class MajorityVote(StrategyWrapper):
    """The first of the strategy's episodes with the most frequent answer (self-consistency, arXiv
    2203.11171); of equally frequent answers, the one that came first. An episode without an answer
    has no vote.
    """

    answer: Callable[[Trajectory], str | None] = last_answer

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        group = await self.strategy.collect(task, runtime, key)
        answers = [self.answer(t) if t.turns else None for t in group.trajectories]
        counts = Counter(answer for answer in answers if answer is not None)
        first = answers.index(counts.most_common(1)[0][0]) if counts else 0
        return keep_trajectories(group, [i == first for i in range(len(answers))])
