"""Pairs from the experiment's demonstrations: their dialogues as roll-ins, or replies of theirs alone (REFUEL's baselines)."""

import dataclasses
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax import data
from agentrl_jax.episodes import scripted_calls
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.run import Run
from agentrl_jax.runtime import Runtime
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task


def as_said(shown: Trajectory, agent: Agent) -> Trajectory:
    """A demonstration with its calls, under the agent's own temperature: its likelihood is the policy's as it samples."""
    told = scripted_calls(shown, agent)
    turns = (
        dataclasses.replace(turn, calls=tuple(dataclasses.replace(c, sampling=agent.sampling) for c in turn.calls)) for turn in told.turns
    )
    return told.replace(turns=tuple(turns))


def seed_in(name: str) -> int:
    """The seed in a task's name. Raises UserError where there is none."""
    seed = name.rpartition("#")[2]
    if not seed.isdecimal():
        raise UserError(f"a demonstration does not say which world it was played in ({name!r}): have the run write its own")
    return int(seed)


@dataclass
class Recorded:
    """A roll-in (`Pairs`): the world of a demonstration, drawn by the key, and its first turns. The world must be the experiment's own."""

    def join(self, run: Run) -> None:
        assert run.demonstrations is not None, "the experiment has no demonstrations"
        self.read(run.demonstrations, run.agent)

    def read(self, path: Path, agent: Agent) -> None:
        """Draw from this file or data set, as what the agent could have said."""
        self._source, self._agent = data.open_source(path), agent

    def begun(self, task: Task, key: Key) -> tuple[Task, Trajectory]:
        shown = data.demonstration(self._source, seed_of(*key, 0, 1, 2) % len(self._source))
        return dataclasses.replace(task, seed=seed_in(shown.task)), as_said(shown, self._agent)


def history_of(shown: Trajectory) -> Hashable:
    """All that was seen and said before the last turn's reply."""
    return shown.opening, tuple((turn.action, turn.observation) for turn in shown.turns[:-1])


@dataclass
class RecordedPairs:
    """Two demonstrations that differ in their last reply alone: nothing is played (REFUEL's last-turn offline).

    Their worlds differ in what was not seen by then, so the difference of their returns is a sample of Q - Q' of the data's players.
    """

    def join(self, run: Run) -> None:
        assert run.demonstrations is not None, "the experiment has no demonstrations"
        self.read(run.demonstrations, run.agent)

    def read(self, path: Path, agent: Agent) -> None:
        """Draw from this file or data set. Raises UserError where no two of its demonstrations are one up to their last turn."""
        self._agent, alike = agent, defaultdict[Hashable, list[Trajectory]](list)
        for shown in data.read(path):
            alike[history_of(shown)].append(shown)
        self._usable = [(some, one) for some in alike.values() if len({one.turns[-1].action for one in some}) > 1 for one in some]
        if not self._usable:
            raise UserError("no two demonstrations differ in their last reply alone: have more written, or in a smaller world")

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        some, first = self._usable[seed_of(*key, 0, 1, 2) % len(self._usable)]
        others = [one for one in some if one.turns[-1].action != first.turns[-1].action]
        second = others[seed_of(*key, 0, 1, 3) % len(others)].replace(sample=1, branch_turn=len(first.turns) - 1)
        return Group(first.task, tuple(as_said(one, self._agent) for one in (first, second)))
