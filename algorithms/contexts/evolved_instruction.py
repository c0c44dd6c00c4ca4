"""`EvolvedInstruction`: each group has an instruction from a population that evolves.

INSPO (arXiv 2512.01945).
"""

import asyncio
import copy
import dataclasses
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax.algorithms.contexts.history_views import SystemInstruction
from agentrl_jax.algorithms.contexts.instruction_population import InstructionPopulation
from agentrl_jax.algorithms.contexts.instruction_writers import InstructionProposer
from agentrl_jax.algorithms.experience.replay import LowRewardBuffer
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import RolloutPiece, gather_group
from agentrl_jax.storage import trajectory_json
from agentrl_jax.timeouts import time_limit
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task

# In place of a sample's index, in keys of draws for a whole group.
DRAW_KEY, TRIAL_KEY = -1, -2


@dataclass
class InstructionEvolution:
    """How a population changes.

    The paper's intervals and numbers are not published, hence no defaults.
    """

    proposer: InstructionProposer
    prune_every: int  # steps between prunings; new instructions join a step after each
    num_candidates: int  # of one proposal
    proxy_episodes: int  # that verify a candidate, on tasks that are not trained on
    failure_buffer: LowRewardBuffer  # the episodes that the proposer reads
    max_length: int = 2000  # characters of an instruction

    def __post_init__(self) -> None:
        if min(self.prune_every, self.num_candidates, self.proxy_episodes, self.max_length) < 1:
            raise UserError(
                "an evolution of instructions needs prune_every, num_candidates, proxy_episodes "
                "and max_length of at least 1"
            )


@dataclass
class EvolvedInstruction(RolloutPiece):
    """A group of independent episodes whose context starts with one instruction.

    The instruction's id is in every turn's `info["instruction"]`, and advantages within the group
    are those of a question with an instruction. Every `prune_every` steps the population is pruned;
    in the next step the process of the first group also requests candidates from the proposer and
    plays a few proxy episodes with each, and the best replace the pruned ones. With one
    instruction, an empty one, and no evolution this is `IndependentEpisodes`.
    """

    population: InstructionPopulation
    group_size: int = 8
    agent: str = "policy"
    evolution: InstructionEvolution | None = None

    def __post_init__(self) -> None:
        self._max_members = len(self.population.members)
        self._steps, self._is_proposal_due = 0, False
        self._trial_results: Sequence[tuple[str, float, int]] = []

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        instruction_id = self.population.draw(np.random.default_rng(seed_of(*key, DRAW_KEY)))
        text = self.population.members[instruction_id].text
        group_episodes = gather_group(
            task, [self._episode(task, runtime, key, i, text) for i in range(self.group_size)]
        )
        if self.evolution is not None and self._is_proposal_due and key[-1] == 0:
            group, trials = await asyncio.gather(
                group_episodes, self._run_trials(self.evolution, task, runtime, key)
            )
            self._trial_results = [
                (text, float(sum(t.total_reward for t in episodes)), len(episodes))
                for text, episodes in trials
            ]
            turns = sum(len(t.turns) for _, episodes in trials for t in episodes)
            group = dataclasses.replace(group, discarded_turns=turns)
        else:
            group = await group_episodes
        trajectories = tuple(_with_instruction_id(t, instruction_id) for t in group.trajectories)
        return dataclasses.replace(group, trajectories=trajectories)

    def _episode(
        self, task: Task, runtime: Runtime, key: RandomKey, sample: int, text: str
    ) -> Coroutine[Any, Any, Trajectory | None]:
        agent = runtime.agents[self.agent]
        context = SystemInstruction(text, inner=agent.context)
        return runtime.episode(task, dataclasses.replace(agent, context=context), key, sample)

    async def _run_trials(
        self, evolution: InstructionEvolution, task: Task, runtime: Runtime, key: RandomKey
    ) -> list[tuple[str, list[Trajectory]]]:
        """New instructions, each with its proxy episodes that have turns.

        All candidates are played on the same tasks.
        """
        try:
            texts = await self._propose(evolution, runtime, key)
        except UserError:
            raise
        except Exception as error:  # a proposer may be any program
            failure = (
                error
                if isinstance(error, EnvironmentFailure)
                else EnvironmentFailure(f"the proposer of instructions raised {error!r}")
            )
            runtime.failures.add(failure, task)
            return []
        num_episodes = evolution.proxy_episodes
        proxy_tasks = [
            dataclasses.replace(task, seed=seed_of(*key, TRIAL_KEY, i)) for i in range(num_episodes)
        ]

        async def run_trial(text: str, first_sample: int) -> tuple[str, list[Trajectory]]:
            episodes = [
                self._episode(proxy_task, runtime, key, first_sample + i, text)
                for i, proxy_task in enumerate(proxy_tasks)
            ]
            group = await gather_group(task, episodes)
            return text, [t for t in group.trajectories if t.turns]

        first = self.group_size
        return await asyncio.gather(
            *(run_trial(text, first + i * num_episodes) for i, text in enumerate(texts))
        )

    async def _propose(
        self, evolution: InstructionEvolution, runtime: Runtime, key: RandomKey
    ) -> list[str]:
        """The proposer's new instructions."""
        buffer, count = evolution.failure_buffer, evolution.num_candidates
        failures = buffer.sample(len(buffer), np.random.default_rng(0))  # all of them
        async with time_limit(runtime.timeouts.episode, "the proposer of instructions"):
            texts = await evolution.proposer.propose(
                self.population.members, failures, count, runtime, (*key, TRIAL_KEY)
            )
        return self.population.filter_new(texts, count, evolution.max_length)

    def summarize(self, groups: Sequence[Group]) -> Any:
        """Each group's returns and instruction, episodes of low return, and trial results."""
        returns, low = [], []
        for group in groups:
            trajectories = [trajectory for trajectory in group.trajectories if trajectory.turns]
            if trajectories:
                group_index = trajectories[0].group
                instruction_id = trajectories[0].turns[0].info["instruction"]
                total = sum(t.total_reward for t in trajectories)
                returns.append((group_index, instruction_id, total, len(trajectories)))
            if self.evolution is not None:
                buffer = dataclasses.replace(self.evolution.failure_buffer)  # an empty copy
                texts_only = tuple(map(_without_calls, trajectories))
                buffer.add([dataclasses.replace(group, trajectories=texts_only)])
                low += [
                    (t.group, trajectory_json.encode(t))
                    for t in buffer.sample(len(buffer), np.random.default_rng(0))
                ]
        return {"earned": returns, "low": low, "tried": self._trial_results}

    def update(self, summaries: Sequence[Any]) -> None:
        """Update the weights, prune every few steps, and admit new instructions a step later."""
        returns = sorted(tuple(row) for summary in summaries for row in summary["earned"])
        for _, instruction_id, total, episodes in returns:
            self.population.add_returns(instruction_id, total, episodes)
        if self.evolution is None:
            return
        low = [(group_index, data) for summary in summaries for group_index, data in summary["low"]]
        low.sort(key=lambda pair: pair[0])
        failures = tuple(trajectory_json.decode(data) for _, data in low)
        self.evolution.failure_buffer.add([Group("", failures)])
        trials = [trial for summary in summaries for trial in summary["tried"]]
        self.population.admit(trials, self._max_members - len(self.population.living_ids))
        self._steps, self._trial_results, self._is_proposal_due = self._steps + 1, [], False
        if self._steps % self.evolution.prune_every == 0:
            self.population.prune()
            self._is_proposal_due = True

    def best_strategy(self) -> "EvolvedInstruction":
        """One episode a task, under the living instruction with the highest mean return."""
        population = copy.deepcopy(self.population)
        best_id = population.best()
        for instruction_id, member in enumerate(population.members):
            member.alive = instruction_id == best_id
        return dataclasses.replace(self, population=population, group_size=1, evolution=None)

    def state(self) -> Any:
        """The counters; the population and the failure buffer are pieces of their own."""
        return [self._steps, self._is_proposal_due]

    def load(self, state: Any) -> None:
        self._steps, self._is_proposal_due = state


def _with_instruction_id(trajectory: Trajectory, instruction_id: int) -> Trajectory:
    return trajectory.replace(
        turns=tuple(
            dataclasses.replace(turn, info={**turn.info, "instruction": instruction_id})
            for turn in trajectory.turns
        )
    )


def _without_calls(trajectory: Trajectory) -> Trajectory:
    return trajectory.replace(
        turns=tuple(dataclasses.replace(turn, calls=()) for turn in trajectory.turns)
    )
