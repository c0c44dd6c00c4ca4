"""`Instructed`: each group plays under an instruction drawn from a population that evolves (INSPO, arXiv 2512.01945)."""

import asyncio
import copy
import dataclasses
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl_jax import journal
from agentrl_jax.algorithms.contexts.population import Population
from agentrl_jax.algorithms.contexts.proposers import Proposer
from agentrl_jax.algorithms.contexts.rewriting import Instruction
from agentrl_jax.algorithms.experience_replay import LowReward
from agentrl_jax.deadlines import within
from agentrl_jax.errors import EnvironmentFailure, UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.strategies import gathered
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task

DRAW, TRIAL = -1, -2  # in the place of a sample's number, in keys of what is drawn for a whole group


@dataclass
class Evolution:
    """How a population changes. The paper's intervals and numbers are not published, hence no defaults."""

    proposer: Proposer
    every: int  # steps between prunings; what survives one is joined by new instructions a step later
    candidates: int  # that are proposed at a time
    proxy: int  # episodes that verify a candidate, in worlds that nobody trains on
    failures: LowReward  # what the proposer may read
    longest: int = 2000  # characters of an instruction

    def __post_init__(self) -> None:
        if min(self.every, self.candidates, self.proxy, self.longest) < 1:
            raise UserError("an evolution of instructions needs every, candidates, proxy and longest of at least 1")


@dataclass
class Instructed:
    """A group of independent episodes whose context starts with one instruction; its number is in every turn's `info["instruction"]`.

    Advantages within the group are thus those of a question and an instruction. Every `every` steps the population is pruned; in
    the next step the first group's process also asks the proposer for candidates and plays each in a few proxy episodes, and the best
    of them take the free places. With one instruction, an empty one, and no evolution this is `Independent`.
    """

    population: Population
    group_size: int = 8
    agent: str = "policy"
    evolution: Evolution | None = None

    def __post_init__(self) -> None:
        self._size, self._steps, self._due = len(self.population.members), 0, False
        self._tried: Sequence[tuple[str, float, int]] = []

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        number = self.population.draw(np.random.default_rng(seed_of(*key, DRAW)))
        text, samples = self.population.members[number].text, range(self.group_size)
        playing = gathered(task, [self._episode(task, runtime, key, sample, text) for sample in samples])
        if self.evolution is not None and self._due and key[-1] == 0:
            group, self._tried = await asyncio.gather(playing, self._trials(self.evolution, task, runtime, key))
        else:
            group = await playing
        return dataclasses.replace(group, trajectories=tuple(_marked(trajectory, number) for trajectory in group.trajectories))

    def _episode(self, task: Task, runtime: Runtime, key: Key, sample: int, text: str) -> Coroutine[Any, Any, Trajectory | None]:
        agent = runtime.agents[self.agent]
        return runtime.episode(task, dataclasses.replace(agent, context=Instruction(text, inner=agent.context)), key, sample)

    async def _trials(self, evolution: Evolution, task: Task, runtime: Runtime, key: Key) -> list[tuple[str, float, int]]:
        """New instructions, each with what it earned in how many proxy episodes; all play the same worlds."""
        known = self.population.members
        try:
            read = evolution.failures.draw(len(evolution.failures), np.random.default_rng(0))  # all of them
            async with within(runtime.deadlines.episode, "the proposer of instructions"):
                texts = await evolution.proposer.propose(known, read, evolution.candidates, runtime, (*key, TRIAL))
            texts = self.population.fresh(texts, evolution.candidates, evolution.longest)
        except UserError:
            raise
        except Exception as error:  # whatever it is: a proposer is a model, or somebody's program
            failure = (
                error if isinstance(error, EnvironmentFailure) else EnvironmentFailure(f"the proposer of instructions raised {error!r}")
            )
            runtime.failures.add(failure, task)
            return []
        worlds = [dataclasses.replace(task, seed=seed_of(*key, TRIAL, i)) for i in range(evolution.proxy)]
        first = self.group_size

        async def trial(text: str, first: int) -> tuple[str, float, int]:
            group = await gathered(task, [self._episode(world, runtime, key, first + i, text) for i, world in enumerate(worlds)])
            returns = [t.total_reward for t in group.trajectories if t.turns]
            return text, float(sum(returns)), len(returns)

        return await asyncio.gather(*(trial(text, first + i * evolution.proxy) for i, text in enumerate(texts)))

    def tell(self, groups: Sequence[Group]) -> Any:
        """What each group earned under which instruction, what went badly, what was tried."""
        earned, low = [], []
        for group in groups:
            played = [trajectory for trajectory in group.trajectories if trajectory.turns]
            if played:
                place, number = played[0].group, played[0].turns[0].info["instruction"]
                earned.append((place, number, sum(t.total_reward for t in played), len(played)))
            if self.evolution is not None:
                worst = dataclasses.replace(self.evolution.failures)  # an empty one that keeps the same
                worst.add([dataclasses.replace(group, trajectories=tuple(map(_without_calls, played)))])
                low += [(t.group, journal.encode(t)) for t in worst.draw(len(worst), np.random.default_rng(0))]
        return {"earned": earned, "low": low, "tried": self._tried}

    def learn(self, told: Sequence[Any]) -> None:
        """The weights, every so often a pruning, and in the step after it the new instructions."""
        for _, number, total, episodes in sorted(tuple(one) for host in told for one in host["earned"]):
            self.population.earned(number, total, episodes)
        if self.evolution is None:
            return
        low = sorted(((place, data) for host in told for place, data in host["low"]), key=lambda one: one[0])
        self.evolution.failures.add([Group("", tuple(journal.decode(data) for _, data in low))])
        tried = [trial for host in told for trial in host["tried"]]
        self.population.admit(tried, self._size - len(self.population.living))
        self._steps, self._tried, self._due = self._steps + 1, [], False
        if self._steps % self.evolution.every == 0:
            self.population.prune()
            self._due = True

    def best(self) -> "Instructed":
        """One episode a task, under the living instruction that earned most: how what was trained with it is judged."""
        population = copy.deepcopy(self.population)
        chosen = population.best()
        for number, member in enumerate(population.members):
            member.alive = number == chosen
        return dataclasses.replace(self, population=population, group_size=1, evolution=None)

    def state(self) -> Any:
        """Its own; the population and the failures say theirs."""
        return [self._steps, self._due]

    def load(self, state: Any) -> None:
        self._steps, self._due = state


def _marked(trajectory: Trajectory, number: int) -> Trajectory:
    return trajectory.replace(
        turns=tuple(dataclasses.replace(turn, info={**turn.info, "instruction": number}) for turn in trajectory.turns)
    )


def _without_calls(trajectory: Trajectory) -> Trajectory:
    return trajectory.replace(turns=tuple(dataclasses.replace(turn, calls=()) for turn in trajectory.turns))
