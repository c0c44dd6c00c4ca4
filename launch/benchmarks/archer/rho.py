"""rho of a task: the correlation of one return with the true advantage of an utterance.

rho = sd(A) / sqrt(sd(A)^2 + E Var(G | s, a)), over the states and utterances of a policy. A
gradient from true advantages in place of returns needs 1 / rho^2 times fewer turns for the same
precision: the most that credit alone can gain, at equal updates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentrl_jax.envs.lmrl.twenty_questions.game import TwentyQuestions
from agentrl_jax.envs.lmrl.twenty_questions.knowledge import all_items
from agentrl_jax.rollout.episode import Prefix
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes, gather_group
from agentrl_jax.trajectories import Group, RandomKey, Trajectory, Turn
from agentrl_jax.workers.pool import Task


@dataclass(frozen=True)
class CreditVariance:
    """Means over states: of the variance of the advantage, and of the return given an utterance."""

    advantage: float
    residual: float

    @property
    def rho(self) -> float:
        """The correlation; 0 where the advantages do not vary."""
        total = self.advantage + self.residual
        return math.sqrt(max(self.advantage, 0.0) / total) if total else 0.0

    @property
    def bound(self) -> float:
        """1 / rho^2; inf where rho is 0."""
        return 1 / self.rho**2 if self.rho else math.inf


def chain_variance(length: int, horizon: int, right: float) -> CreditVariance:
    """Exact, for `Chain(length, wrong=1)` and a policy that is right with a probability in every
    place, weighted by how often each place and time is visited.
    """
    value = np.zeros((horizon + 1, length + 1))  # turns left, place -> probability of success
    value[:, length] = 1.0
    back = np.maximum(np.arange(length) - 1, 0)
    for left in range(1, horizon + 1):
        value[left, :length] = right * value[left - 1, 1:] + (1 - right) * value[left - 1, back]
    visits, advantage, residual, turns = np.zeros(length + 1), 0.0, 0.0, 0.0
    visits[0] = 1.0
    for left in range(horizon, 0, -1):
        current, after = visits[:length], value[left - 1]
        q_right, q_wrong = after[1:], after[back]
        advantage += float(current @ (right * (1 - right) * (q_right - q_wrong) ** 2))
        each = right * q_right * (1 - q_right) + (1 - right) * q_wrong * (1 - q_wrong)
        residual += float(current @ each)
        turns += float(current.sum())
        visits = np.zeros(length + 1)
        visits[1:] += right * current
        np.add.at(visits, back, (1 - right) * current)
        visits[length] = 0.0
    return CreditVariance(advantage / turns, residual / turns)


def grouped_variance(groups: Sequence[Sequence[float]]) -> CreditVariance | None:
    """The components of variance of the returns of one state, grouped by their utterance: the
    unbiased estimates of a one-way random-effects analysis; None without two utterances or without
    an utterance that was drawn twice.
    """
    sizes = np.array([len(group) for group in groups], np.float64)
    count, total = len(groups), sizes.sum()
    if count < 2 or total == count:
        return None
    means = np.array([np.mean(group) for group in groups])
    mean = float(sizes @ means / total)
    within = sum(float(np.sum((np.asarray(x) - m) ** 2)) for x, m in zip(groups, means))
    residual = within / (total - count)
    between = float(sizes @ (means - mean) ** 2) / (count - 1)
    size = (total - float(sizes @ sizes) / total) / (count - 1)
    component = (between - residual) / size
    # of the population of utterances as they are drawn, not of the distinct ones
    share = 1 - float(np.sum((sizes / total) ** 2))
    return CreditVariance(component * share, residual)


def mean_variance(states: Sequence[CreditVariance]) -> CreditVariance:
    """The means over states."""
    return CreditVariance(
        float(np.mean([x.advantage for x in states])), float(np.mean([x.residual for x in states]))
    )


Posterior = Callable[[Sequence[Turn]], list[dict[str, str] | None]]


@dataclass(frozen=True)
class PossibleTargets:
    """The reset options that the answers so far leave open in Twenty Questions, all as likely."""

    words: str

    def __call__(self, turns: Sequence[Turn]) -> list[dict[str, str] | None]:
        game = TwentyQuestions(self.words)
        game.question_answers = tuple(
            (turn.action.text.strip(), turn.observation[0].text.strip()) for turn in turns
        )
        return [{"target": all_items()[row].listed_name} for row in sorted(game.possible_rows())]


@dataclass
class Rerolls:
    """A strategy: games that go on from the same state, each with one of its possible targets."""

    trajectory: Trajectory
    turn: int  # the state is that before this turn
    count: int
    posterior: Posterior

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        turns = self.trajectory.turns[: self.turn]
        options, rng = self.posterior(turns), np.random.default_rng(key)
        prefix = Prefix(self.trajectory.opening, turns, self.trajectory.sample)
        choices = rng.integers(len(options), size=self.count).tolist()
        return await gather_group(
            task,
            [
                runtime.episode(
                    replace(task, reset_options=options[choice]), "policy", key, sample, prefix
                )
                for sample, choice in enumerate(choices, 1)
            ],
        )


def rerolled_variance(
    runtime: Runtime, tasks: Sequence[Task], count: int, posterior: Posterior, seed: int
) -> CreditVariance:
    """By games of the policy: a state of each task's game, from which `count` games go on.

    Args:
        runtime: with the agent "policy", whose engine holds the policy.
        tasks: a game each, of which one turn is drawn.
        count: games that go on from each state.
        posterior: the reset options that the state leaves open.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    variances = []
    for i, group in enumerate(runtime.collect(IndependentEpisodes(1), tasks, (seed, 0))):
        for trajectory in group.trajectories:
            turn = int(rng.integers(len(trajectory.turns)))
            rerolls = Rerolls(trajectory, turn, count, posterior)
            (games,) = runtime.collect(rerolls, [tasks[i]], (seed, 1 + i))
            variance = grouped_variance(returns_by_utterance(games, turn))
            if variance is not None:
                variances.append(variance)
    return mean_variance(variances)


def returns_by_utterance(group: Group, turn: int) -> list[list[float]]:
    """The returns from a turn on of a group's games, grouped by what was written in it."""
    grouped: dict[str, list[float]] = {}
    for trajectory in group.trajectories:
        turns = trajectory.turns[turn:]
        grouped.setdefault(turns[0].action.text, []).append(sum(x.reward for x in turns))
    return list(grouped.values())
