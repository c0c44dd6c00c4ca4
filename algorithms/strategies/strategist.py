"""`StrategistRollouts`: a trained strategist writes each turn's strategy, a frozen actor acts.

EPO (arXiv 2502.12486).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentrl_jax.algorithms.advantages.info_fields import succeeded
from agentrl_jax.algorithms.strategies.episode_driver import EpisodeDriver, collect_driven_group
from agentrl_jax.errors import UserError
from agentrl_jax.messages import Message, user
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.trajectories import Group, RandomKey, Trajectory
from agentrl_jax.workers.pool import Task


def as_user_message(message: Message) -> Message:
    """How each of the two agents sees the other's messages."""
    return user(message.text + "\n")


@dataclass
class StrategistRollouts:
    """`group_size` episodes of two agents; the trajectories are those of the strategist.

    Each turn the strategist reads the conversation with its own strategies and writes the next
    strategy. The actor reads the same conversation with that strategy as the newest message, and
    its action goes to the environment. With `send_strategy_to_env` the strategy goes to the
    environment first, which must reply to it as to an action. `critical_turn_judge` marks the turns
    that decided a solved episode (`info["critical"]`, see `turn_rewards.CriticalTurnReward`).
    Without an actor strategies are actions: plain independent episodes.
    """

    group_size: int = 8
    actor: str = "actor"
    send_strategy_to_env: bool = False
    critical_turn_judge: Callable[[Trajectory], Sequence[bool]] | None = None
    format_message: Callable[[Message], Message] = as_user_message
    agent: str = "policy"

    async def collect(self, task: Task, runtime: Runtime, key: RandomKey) -> Group:
        if not self.actor:
            return await IndependentEpisodes(self.group_size, self.agent).collect(
                task, runtime, key
            )
        if self.actor not in runtime.agents:
            raise UserError(
                f"there is no agent {self.actor!r} to act on strategies: add it to config.models"
            )
        return await collect_driven_group(
            task, runtime, self.agent, key, self.group_size, self._run_episode
        )

    async def _run_episode(self, driver: EpisodeDriver) -> Trajectory:
        opening = await driver.reset()
        strategist, actor, success = driver.open_session(self.agent, opening), None, None
        # The actor's last action, and the environment's reply to it.
        action, observation = Message("assistant", ""), ()
        while strategist.stop_reason is None:
            strategy = await strategist.act()
            if strategy is None:
                break
            turn, strategy_reply, strategy_rewards = len(strategist.turns), (), {}
            if self.send_strategy_to_env:
                strategy_reply, reward, terminated, truncated, info = await driver.step(
                    turn, strategy
                )
                strategy_rewards = info.pop("rewards")
                if terminated or truncated:
                    info = {**info, "rewards": strategy_rewards}
                    strategist.observe(
                        strategy,
                        strategy_reply,
                        reward,
                        terminated,
                        truncated,
                        info,
                        driver.env.step_time,
                    )
                    success = info.get("success")
                    break
            actor_view = (self.format_message(strategy), *strategy_reply)
            if actor is None:
                actor = driver.open_session(self.actor, (*opening, *actor_view), agent_index=1)
            else:
                actor.observe(action, (*observation, *actor_view), 0.0, False, False, {})
            next_action = await actor.act()
            if next_action is None:  # no room for an action: the strategy is not recorded
                strategist.stop_reason = "context"
                break
            action = next_action
            observation, reward, terminated, truncated, info = await driver.step(turn, action)
            success = info.get("success")
            rewards = sum_reward_parts(strategy_rewards, info.pop("rewards"))
            strategist.observe(
                strategy,
                (*strategy_reply, self.format_message(action), *observation),
                sum(rewards.values()),
                terminated,
                truncated,
                {**info, "rewards": rewards},
                driver.env.step_time,
            )
        return self._mark_critical_turns(driver.trajectory(strategist, success))

    def _mark_critical_turns(self, trajectory: Trajectory) -> Trajectory:
        if self.critical_turn_judge is None or not succeeded(trajectory):
            return trajectory
        marks = zip(trajectory.turns, self.critical_turn_judge(trajectory), strict=True)
        turns = (
            dataclasses.replace(turn, info={**turn.info, "critical": bool(mark)})
            for turn, mark in marks
        )
        return trajectory.replace(turns=tuple(turns))


def sum_reward_parts(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """The named parts of two rewards, summed by name."""
    return {name: first.get(name, 0.0) + second.get(name, 0.0) for name in {**first, **second}}
