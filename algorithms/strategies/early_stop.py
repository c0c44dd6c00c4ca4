"""`EarlyStopping`: ends episodes that cannot succeed.

ActiveVLN (arXiv 2509.12618); SimpleTIR (arXiv 2509.02479).
"""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.advantages.trajectory_checks import is_void_turn
from agentrl_jax.algorithms.strategies.wrapper import StrategyWrapper
from agentrl_jax.errors import UserError
from agentrl_jax.keys import seed_of
from agentrl_jax.rollout.agent_session import AgentSession
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey, Trajectory, Turn
from agentrl_jax.workers.pool import Task

StopPredicate = Callable[[Sequence[Turn]], bool]  # the turns so far -> whether the episode ends
StopRule = Callable[[Task, Runtime], Awaitable[StopPredicate]]


@dataclass
class StepBudget:
    """ActiveVLN: int(min(expert's turns x tolerance, max_turns)) turns, 2 and 120 in its scripts.

    `max_turns` where the expert's environment failed.
    """

    tolerance: float = 2.0
    max_turns: int = 120
    player: str = "expert"

    def turn_budget(self, expert_turns: int) -> int:
        """The number of turns after which an episode is stopped."""
        return int(min(expert_turns * self.tolerance, self.max_turns))

    async def __call__(self, task: Task, runtime: Runtime) -> StopPredicate:
        expert = await runtime.scripted_episode(task, self.player, seed_of(task.seed))
        budget = max(1, self.turn_budget(len(expert.turns)) if expert else self.max_turns)
        return lambda turns: len(turns) >= budget


@dataclass
class StopOnTurn:
    """Stops after a turn for which the predicate is true.

    SimpleTIR: a void turn, with neither tool code nor an answer.
    """

    predicate: Callable[[Turn], bool] = is_void_turn

    async def __call__(self, task: Task, runtime: Runtime) -> StopPredicate:
        return lambda turns: self.predicate(turns[-1])


@dataclass
class EarlyStopping(StrategyWrapper):
    """Stops an episode as soon as one of `stop_rules` holds; it has failed with return 0.

    A stopped episode stays in its group.
    """

    stop_rules: Sequence[StopRule] = ()

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if not self.stop_rules:
            raise UserError("EarlyStopping needs stop_rules: add some, or leave it out")
        predicates = [await rule(task, runtime) for rule in self.stop_rules]

        async def stop_early(session: AgentSession) -> None:
            if session.stop_reason is None and any(stops(session.turns) for stops in predicates):
                session.stop_reason = "early"

        group = await self.strategy.collect(task, runtime.with_agents(on_turn=stop_early), key)
        trajectories = tuple(
            with_zero_reward(t) if t.stop_reason == "early" else t for t in group.trajectories
        )
        return dataclasses.replace(group, trajectories=trajectories)


def with_zero_reward(trajectory: Trajectory) -> Trajectory:
    """The same turns with reward 0, and no success."""
    turns = (turn.with_reward(0.0, dict.fromkeys(turn.rewards, 0.0)) for turn in trajectory.turns)
    return trajectory.replace(turns=tuple(turns), success=False)
