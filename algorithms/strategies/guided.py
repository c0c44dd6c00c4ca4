"""`Guided`: a strategist that is trained says each turn what to do, a frozen agent does it (EPO, arXiv 2502.12486)."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.strategies.staging import Stage, staged
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.runtime import Runtime
from agentrl_jax.strategies import Independent
from agentrl_jax.trajectories import Group, Key, Trajectory
from agentrl_jax.workers import Task


def as_user(written: Message) -> Message:
    """How each of the two is shown what the other wrote."""
    return user(written.text + "\n")


@dataclass
class Guided:
    """`group_size` episodes of two agents; the trajectories are the strategist's and hold its calls alone.

    Each turn the strategist reads the conversation, its own strategies in it, and writes the next one. The actor reads the same
    conversation with that strategy as the newest message, and what it writes goes to the world. With `heard` the strategy goes to the
    world first, which must answer it as it answers an action. `judge` says of a solved episode which turns decided it
    (`info["critical"]`, see `process_rewards.JudgedTurns`). Without an actor strategies are actions: plain independent episodes.
    """

    group_size: int = 8
    actor: str = "actor"
    heard: bool = False
    judge: Callable[[Trajectory], Sequence[bool]] | None = None
    shown: Callable[[Message], Message] = as_user
    agent: str = "policy"

    async def collect(self, task: Task, runtime: Runtime, key: Key) -> Group:
        if not self.actor:
            return await Independent(self.group_size, self.agent).collect(task, runtime, key)
        if self.actor not in runtime.agents:
            raise UserError(f"there is no agent {self.actor!r} to act on strategies: add one to the runtime, or use WithFrozen")
        return await staged(task, runtime, self.agent, key, self.group_size, self._guided)

    async def _guided(self, stage: Stage) -> Trajectory:
        opening = await stage.reset()
        strategist, actor, success = stage.speaker(self.agent, opening), None, None
        action, observation = Message("assistant", ""), ()  # what the actor did last, and what came of it
        while strategist.stop is None:
            strategy = await strategist.say()
            if strategy is None:
                break
            turn, said, earned = len(strategist.turns), (), {}
            if self.heard:
                said, reward, terminated, truncated, info = await stage.step(turn, strategy)
                earned = info.pop("rewards")
                if terminated or truncated:
                    strategist.hear(strategy, said, reward, terminated, truncated, {**info, "rewards": earned})
                    success = info.get("success")
                    break
            told = (self.shown(strategy), *said)
            if actor is None:
                actor = stage.speaker(self.actor, (*opening, *told), seat=1)
            else:
                actor.hear(action, (*observation, *told), 0.0, False, False, {})
            found = await actor.say()
            if found is None:  # there is no room for it: the strategy comes to nothing and is not recorded
                strategist.stop = "context"
                break
            action = found
            observation, reward, terminated, truncated, info = await stage.step(turn, action)
            success = info.get("success")
            parts = added(earned, info.pop("rewards"))
            heard = (*said, self.shown(action), *observation)
            strategist.hear(strategy, heard, sum(parts.values()), terminated, truncated, {**info, "rewards": parts})
        return self._judged(stage.trajectory(strategist, success))

    def _judged(self, trajectory: Trajectory) -> Trajectory:
        if self.judge is None or not trajectory.success:
            return trajectory
        marks = zip(trajectory.turns, self.judge(trajectory), strict=True)
        turns = (dataclasses.replace(turn, info={**turn.info, "critical": bool(mark)}) for turn, mark in marks)
        return trajectory.replace(turns=tuple(turns))


def added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Named parts of two rewards, summed by name."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}
