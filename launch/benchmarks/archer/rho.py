"""rho of a task: the correlation of one return with the true advantage of an utterance.

rho = sd(A) / sqrt(sd(A)^2 + E Var(G | s, a)), over the states and utterances of a policy. A
gradient from true advantages in place of returns needs 1 / rho^2 times fewer turns for the same
precision: the most that credit alone can gain, at equal updates.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from agentrl_jax.environment import make
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
        occupancy, after = visits[:length], value[left - 1]
        q_right, q_wrong = after[1:], after[back]
        advantage += float(occupancy @ (right * (1 - right) * (q_right - q_wrong) ** 2))
        each = right * q_right * (1 - q_right) + (1 - right) * q_wrong * (1 - q_wrong)
        residual += float(occupancy @ each)
        turns += float(occupancy.sum())
        visits = np.zeros(length + 1)
        visits[1:] += right * occupancy
        np.add.at(visits, back, (1 - right) * occupancy)
        visits[length] = 0.0
    return CreditVariance(advantage / turns, residual / turns)


def nested_variance(returns: Sequence[Sequence[float]]) -> CreditVariance:
    """The components of variance of the returns of one state, [utterances, games of each].

    The utterances are independent draws of the policy, with repetitions. Between them the means
    vary by Var(A) + Var(G | s, a) / games; the estimates are unbiased, so the first may be
    negative.
    """
    x = np.asarray(returns, np.float64)
    residual = float(np.mean(np.var(x, axis=1, ddof=1)))
    between = float(np.var(x.mean(axis=1), ddof=1))
    return CreditVariance(between - residual / x.shape[1], residual)


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
    """A strategy: utterances of the policy in one state, and games that go on from each.

    Each game has a target that the state leaves open, drawn anew: what it replies to the utterance
    is asked of an environment of its own. The group is that of the utterances' first games.
    """

    trajectory: Trajectory
    turn: int  # the state is that before this turn
    utterances: int
    games: int  # of each utterance
    posterior: Posterior
    returns: list[list[float]] = field(default_factory=list)  # from the turn on, once collected

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        rng, turns = np.random.default_rng(key), self.trajectory.turns[: self.turn]
        options = self.posterior(turns)

        def possible_task() -> Task:
            return replace(task, reset_options=options[int(rng.integers(len(options)))])

        prefix = Prefix(self.trajectory.opening, turns, self.trajectory.sample)
        group = await gather_group(
            task,
            [
                runtime.episode(possible_task(), "policy", key, sample, prefix)
                for sample in range(self.utterances)
            ],
        )
        for i, trajectory in enumerate(group.trajectories):
            values = [_return_from(trajectory, self.turn)]
            possible_tasks = [possible_task() for _ in range(self.games - 1)]
            replies = [
                (possible, next_turn(possible, turns, trajectory.turns[self.turn]))
                for possible in possible_tasks
            ]
            values += [turn.reward for _, turn in replies if is_last(turn)]
            games = await gather_group(
                task,
                [
                    runtime.episode(
                        possible, "policy", key, sample, replace(prefix, turns=(*turns, turn))
                    )
                    for sample, (possible, turn) in enumerate(
                        replies, self.utterances + i * self.games
                    )
                    if not is_last(turn)
                ],
            )
            self.returns.append(values + [_return_from(t, self.turn) for t in games.trajectories])
        return group


def is_last(turn: Turn) -> bool:
    """Whether the game ends with it."""
    return turn.terminated or turn.truncated


def next_turn(task: Task, turns: Sequence[Turn], turn: Turn) -> Turn:
    """A turn as a task's environment answers it after some turns."""
    env = make(task.environment, task.options)
    env.reset(seed=task.seed, options=task.reset_options)
    for before in turns:
        env.step(before.action)
    observation, reward, terminated, truncated, info = env.step(turn.action)
    return replace(
        turn,
        observation=tuple(observation),
        reward=float(reward),
        terminated=terminated,
        truncated=truncated,
        info=info,
    )


def rerolled_variance(
    runtime: Runtime,
    tasks: Sequence[Task],
    utterances: int,
    games: int,
    posterior: Posterior,
    seed: int,
) -> CreditVariance:
    """By games of the policy: a state of each task's game, from which others go on.

    Args:
        runtime: with the agent "policy", whose engine holds the policy.
        tasks: a game each, of which one turn is drawn.
        utterances: of the policy in each state.
        games: that go on from each of these.
        posterior: the reset options that the state leaves open.
        seed: of the random numbers.
    """
    rng, variances = np.random.default_rng(seed), []
    for i, group in enumerate(runtime.collect(IndependentEpisodes(1), tasks, (seed, 0))):
        for trajectory in group.trajectories:
            turn = int(rng.integers(len(trajectory.turns)))
            rerolls = Rerolls(trajectory, turn, utterances, games, posterior)
            runtime.collect(rerolls, [tasks[i]], (seed, 1 + i))
            variances.append(nested_variance(rerolls.returns))
    return mean_variance(variances)


def _return_from(trajectory: Trajectory, turn: int) -> float:
    return float(sum(x.reward for x in trajectory.turns[turn:]))
