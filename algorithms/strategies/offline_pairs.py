"""Pairs from the experiment's demonstrations: dialogues as roll-ins, or pairs of replies.

REFUEL's baselines (arXiv 2410.04612).
"""

import dataclasses
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.agent import Agent
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import RolloutPiece
from agentrl_jax.rollout.teacher_forcing import add_demonstration_calls
from agentrl_jax.training import demonstrations
from agentrl_jax.training.config import RunContext
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task


def with_policy_calls(demonstration: Trajectory, agent: Agent) -> Trajectory:
    """A demonstration with calls of the agent's own sampling parameters, temperature included.

    Its likelihood is then that of the policy as it samples.
    """
    trajectory = add_demonstration_calls(demonstration, agent)
    turns = []
    for turn in trajectory.turns:
        calls = tuple(dataclasses.replace(c, sampling=agent.sampling) for c in turn.calls)
        turns.append(dataclasses.replace(turn, calls=calls))
    return trajectory.replace(turns=tuple(turns))


def seed_from_task_name(task_name: str) -> int:
    """The seed in a task's name. Raises UserError where there is none."""
    seed = task_name.rpartition("#")[2]
    if not seed.isdecimal():
        raise UserError(
            f"a demonstration does not name the seed of its environment ({task_name!r}): "
            "have the run write its own"
        )
    return int(seed)


@dataclass
class DemonstrationRollIn(RolloutPiece):
    """A roll-in (`PairedRollouts`): the task and turns of a demonstration that the key draws.

    The environment must be the experiment's own.
    """

    def attach(self, run: RunContext) -> None:
        assert run.demonstrations is not None, "the experiment has no demonstrations"
        self.open_demonstrations(run.demonstrations, run.agent)

    def open_demonstrations(self, path: Path, agent: Agent) -> None:
        """Draw from this file or dataset, with calls of the agent."""
        self._source, self._agent = demonstrations.open_source(path), agent

    def sample_roll_in(self, task: Task, key: RandomKey) -> tuple[Task, Trajectory]:
        index = seed_of(*key, 0, 1, 2) % len(self._source)
        demonstration = self._source[index]
        if task.label and demonstration.environment != task.label:
            raise UserError(
                f"a demonstration in {demonstration.environment} cannot be a roll-in of "
                f"{task.label}: train this strategy on the environment of the demonstrations alone"
            )
        task = dataclasses.replace(task, seed=seed_from_task_name(demonstration.task))
        return task, with_policy_calls(demonstration, self._agent)


def history_before_last_reply(demonstration: Trajectory) -> Hashable:
    """All messages before the last turn's reply."""
    return demonstration.opening, tuple(
        (turn.action, turn.observation) for turn in demonstration.turns[:-1]
    )


@dataclass
class DemonstrationPairs(RolloutPiece):
    """Two demonstrations that differ only in their last reply (REFUEL's last-turn offline).

    No episode is played. Their environments differ in what was not observed by then, so the
    difference of their returns is a sample of Q - Q' of the behavior policies.
    """

    def attach(self, run: RunContext) -> None:
        assert run.demonstrations is not None, "the experiment has no demonstrations"
        self.load_demonstrations(run.demonstrations, run.agent)

    def load_demonstrations(self, path: Path, agent: Agent) -> None:
        """Draw from this file or dataset.

        Raises UserError where no two of its demonstrations agree up to their last reply.
        """
        self._agent = agent
        by_history = defaultdict[Hashable, list[Trajectory]](list)
        for demonstration in demonstrations.read(path):
            by_history[history_before_last_reply(demonstration)].append(demonstration)
        # (all demonstrations of one history, one of them)
        self._candidates = [
            (trajectories, first)
            for trajectories in by_history.values()
            if len({t.turns[-1].action for t in trajectories}) > 1
            for first in trajectories
        ]
        if not self._candidates:
            raise UserError(
                "no two demonstrations differ only in their last reply: have more written, or in a "
                "smaller environment"
            )

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        trajectories, first = self._candidates[seed_of(*key, 0, 1, 2) % len(self._candidates)]
        different = [t for t in trajectories if t.turns[-1].action != first.turns[-1].action]
        second = different[seed_of(*key, 0, 1, 3) % len(different)]
        second = second.replace(sample=1, branch_turn=len(first.turns) - 1)
        return Group(first.task, tuple(with_policy_calls(t, self._agent) for t in (first, second)))
