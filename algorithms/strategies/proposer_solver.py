"""`ProposerSolver`: one model asks questions and answers them (Search Self-play,
arXiv 2510.18821).
"""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.algorithms.advantages.grouping import factorize
from agentrl_jax.algorithms.advantages.info_fields import info_field, succeeded
from agentrl_jax.algorithms.experience.potential_stages import potential
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.learner.deferred_inputs import trajectory_values
from agentrl_jax.learner.sequences import CreditInputs
from agentrl_jax.messages import Message
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import RolloutPiece
from agentrl_jax.training.task_source import EnvironmentSpec
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task

CHECK_KEY, POOL_KEY = -5, -6  # in place of a sample, in the keys of the check and of the pool
PROPOSAL = "proposal"  # the part of the reward that only a proposer has


def failure_rate(success: float) -> float:
    """1 - p of the solver's mean success p."""
    return 1.0 - success


def intermediate_difficulty(success: float) -> float:
    """4 p (1 - p) of the solver's mean success p."""
    return float(potential(np.asarray(success)))


def group_or_proposers(inputs: CreditInputs) -> np.ndarray:
    """The group of each solver's trajectory, and one key for all proposers of the batch, [J]."""
    proposes = trajectory_values(inputs, is_proposal)
    groups = inputs.trajectory_group.tolist()
    return factorize(-1 if proposer else group for proposer, group in zip(proposes, groups))


def is_proposal(trajectory: Trajectory) -> bool:
    """Whether a trajectory is a proposer's, not a solver's."""
    return PROPOSAL in trajectory.reward_parts


@dataclass
class AnswerableCheck:
    """Whether a model answers a question from the documents of its proposer, among others.

    Args:
        prompt: of a question and documents.
        documents: that an episode's searches showed.
        score: of an answer and the right ones; 1 is right.
        model: answers; a named model or an agent.
        noise: documents of other trajectories that are shuffled among the proposer's.
    """

    prompt: Callable[[str, Sequence[str]], Sequence[Message]]
    documents: Callable[[Trajectory], Sequence[str]]
    score: Callable[[str, Sequence[str]], float]
    model: str = "reader"
    noise: int = 4

    async def __call__(
        self, proposal: Trajectory, others: Sequence[str], runtime: Runtime, key: RandomKey
    ) -> bool:
        """Raises EnvironmentFailure where the model fails."""
        last, rng = proposal.turns[-1], np.random.default_rng(seed_of(*key))
        documents = list(self.documents(proposal))
        foreign = [text for text in others if text not in documents]
        count = min(self.noise, len(foreign))
        documents += [foreign[i] for i in rng.permutation(len(foreign))[:count]]
        shuffled = [documents[i] for i in rng.permutation(len(documents))]
        prompt = self.prompt(info_field(last, "answer"), shuffled)
        answer = await runtime.models.ask(self.model, prompt, key)
        return self.score(answer.text.strip(), [info_field(last, "gold")]) >= 1


@dataclass
class ProposerSolver(RolloutPiece):
    """Of each task one proposal, then `group_size` episodes that try to solve it.

    The task's environment is the proposer's; it marks the last turn of an episode with
    `info["valid"]`, the question as `info["answer"]` and the answer as `info["gold"]`. A question
    that passes the check, too, is given to the solver's environment as its reset option `question`.
    The proposer's reward is then a function of the solvers' mean success, else `invalid_reward`. In
    place of an invalid question the solvers get one of the pool: valid ones of earlier steps. The
    check's noise documents are those of the last step's proposers.

    Args:
        solver: the solver's environment.
        check: of a question that is valid by rules; None: there is none.
        group_size: episodes of the solver.
        reward: of the proposer, by the solvers' mean success.
        invalid_reward: published: 0 (script) or -1 (default of the code).
        refill: whether the solvers get a question of the pool in place of an invalid one.
        pool_steps: steps after which the pool is emptied.
        agent: plays both.
    """

    solver: EnvironmentSpec
    check: AnswerableCheck | None = None
    group_size: int = 5
    reward: Callable[[float], float] = failure_rate
    invalid_reward: float = 0.0
    refill: bool = True
    pool_steps: int = 10
    agent: str = "policy"

    def __post_init__(self) -> None:
        if min(self.group_size, self.pool_steps) < 1:
            raise UserError(f"group_size and pool_steps must be at least 1: {self}")
        self._steps = 0
        self._pool: list[list[str]] = []  # questions and answers
        self._documents: list[str] = []  # of the last step's proposers

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        proposal = await runtime.episode(task, self.agent, key, 0)
        valid = None if proposal is None else await self._valid(proposal, task, runtime, key)
        question = valid if valid or not self.refill else self._pooled(key)
        solvers = await self._solve(question, task, runtime, key) if question else []
        solved = [trajectory for trajectory in solvers if trajectory is not None]
        proposals = []
        if proposal is not None:
            rate = np.mean([succeeded(t) for t in solved]) if valid and solved else None
            reward = self.invalid_reward if rate is None else self.reward(float(rate))
            proposals.append(_with_outcome(proposal, reward, valid is not None))
        dropped = (proposal is None) + len(solvers) - len(solved)
        return Group(task.name, (*proposals, *solved), num_dropped=dropped)

    async def _valid(
        self, proposal: Trajectory, task: Task, runtime: Runtime, key: RandomKey
    ) -> list[str] | None:
        """The question and its answer; None: it is not valid, or the check's model fails."""
        info = proposal.turns[-1].info if proposal.turns else {}
        if not info.get("valid", False):
            return None
        try:
            if self.check and not await self.check(
                proposal, self._documents, runtime, (*key, CHECK_KEY)
            ):
                return None
        except EnvironmentFailure as failure:
            runtime.failures.add(failure, task)
            return None
        return [str(info["answer"]), str(info["gold"])]

    def _pooled(self, key: RandomKey) -> list[str] | None:
        rng = np.random.default_rng(seed_of(*key, POOL_KEY))
        return self._pool[int(rng.integers(len(self._pool)))] if self._pool else None

    async def _solve(
        self, question: Sequence[str], task: Task, runtime: Runtime, key: RandomKey
    ) -> list[Trajectory | None]:
        solving = dataclasses.replace(
            self.solver.task(task.seed, task.group),
            reset_options={"question": list(question)},
            label=task.label or task.environment,  # of the group's name
        )
        samples = range(1, self.group_size + 1)
        return await asyncio.gather(
            *(runtime.episode(solving, self.agent, key, sample) for sample in samples)
        )

    def summarize(self, groups: Sequence[Group]) -> Any:
        """The valid questions of each group, and the documents of its proposer."""
        proposals = [t for g in groups for t in g.trajectories if is_proposal(t)]
        questions = [
            (t.group, [str(t.turns[-1].info["answer"]), str(t.turns[-1].info["gold"])])
            for t in proposals
            if t.success
        ]
        documents_of = self.check.documents if self.check else lambda t: ()
        return {
            "questions": questions,
            "documents": [(t.group, [*documents_of(t)]) for t in proposals],
        }

    def update(self, summaries: Sequence[Any]) -> None:
        """Add the step's questions to the pool, which is emptied every `pool_steps` steps."""
        self._steps += 1
        if self._steps % self.pool_steps == 0:
            self._pool = []
        rows = {name: [row for s in summaries for row in s[name]] for name in summaries[0]}
        self._pool += [list(row) for _, row in sorted(rows["questions"], key=lambda x: x[0])]
        documents = sorted(rows["documents"], key=lambda x: x[0])
        self._documents = list(dict.fromkeys(text for _, texts in documents for text in texts))

    def state(self) -> Any:
        return [self._steps, self._pool, self._documents]

    def load(self, state: Any) -> None:
        self._steps, self._pool, self._documents = state


def _with_outcome(proposal: Trajectory, reward: float, valid: bool) -> Trajectory:
    """The proposer's trajectory with its reward at the last turn, in place of the environment's."""
    turns = [turn.with_reward(0.0, {PROPOSAL: 0.0}) for turn in proposal.turns]
    if turns:
        turns[-1] = turns[-1].with_reward(reward, {PROPOSAL: reward})
    return proposal.replace(turns=tuple(turns), success=valid)
