"""`Early`: episodes are stopped that will come to nothing (ActiveVLN, arXiv 2509.12618; SimpleTIR, 2509.02479)."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.quality import void_turn
from agentrl_jax.algorithms.strategies.around import Around
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Speaker
from agentrl_jax.trajectories import Group, Key, Trajectory, Turn
from agentrl_jax.workers import Task

Over = Callable[[Sequence[Turn]], bool]  # whether an episode that came so far is stopped
Stop = Callable[[Task, Runtime], Awaitable[Over]]


@dataclass
class StepBudget:
    """ActiveVLN: int(min(expert's turns x tolerance, most)) turns, 2 and 120 in its scripts; `most` where the expert's world failed."""

    tolerance: float = 2.0
    most: int = 120
    player: str = "expert"

    def turns(self, expert: int) -> int:
        return int(min(expert * self.tolerance, self.most))

    async def __call__(self, task: Task, runtime: Runtime) -> Over:
        shown = await runtime.scripted(task, self.player, seed_of(task.seed))
        budget = max(1, self.turns(len(shown.turns)) if shown else self.most)
        return lambda turns: len(turns) >= budget


@dataclass
class OnTurn:
    """After a turn that is wrong: SimpleTIR's void turns, which hold neither a tool's code nor an answer."""

    wrong: Callable[[Turn], bool] = void_turn

    async def __call__(self, task: Task, runtime: Runtime) -> Over:
        return lambda turns: self.wrong(turns[-1])


@dataclass
class Early(Around):
    """Stops an episode as soon as one of `stops` says so; it has failed, earns 0 in all and stays in its group."""

    stops: Sequence[Stop] = ()

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        if not self.stops:
            raise UserError("nothing stops these episodes: give Early some stops, or leave it out")
        overs = [await stop(task, runtime) for stop in self.stops]

        async def after(speaker: Speaker) -> None:
            if speaker.stop is None and any(over(speaker.turns) for over in overs):
                speaker.stop = "early"

        group = await self.strategy.collect(task, runtime.under(after=after), key)
        stopped = (failed(t) if t.stop_reason == "early" else t for t in group.trajectories)
        return dataclasses.replace(group, trajectories=tuple(stopped))


def failed(trajectory: Trajectory) -> Trajectory:
    """The same turns, which earned nothing."""
    turns = (dataclasses.replace(turn, reward=0.0, rewards=dict.fromkeys(turn.rewards, 0.0)) for turn in trajectory.turns)
    return trajectory.replace(turns=tuple(turns), success=False)
