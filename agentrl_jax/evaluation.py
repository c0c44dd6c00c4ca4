"""Evaluation: the same worlds for every player, mean returns with intervals."""

import dataclasses
from collections.abc import Sequence

from agentrl_jax.experiment import EnvironmentConfig
from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.strategies import Independent, Scripted
from agentrl_jax.trajectories import Trajectory


def play_all(
    runtime: Runtime, environment: EnvironmentConfig, episodes: int, seed: int, player: str | None = None, temperature: float = 1.0
) -> list[Trajectory]:
    """One episode of each world, by a scripted player, or by the policy (`player` None) at the given temperature."""
    tasks = [environment.task(seed + i, group=i) for i in range(episodes)]
    if player is not None:
        strategy: Strategy = Scripted(player)
    else:
        who = runtime.agents["policy"]
        runtime.agents["evaluated"] = dataclasses.replace(who, sampling=dataclasses.replace(who.sampling, temperature=temperature))
        strategy = Independent(1, "evaluated")
    return flatten([group.trajectories for group in runtime.collect(strategy, tasks, (seed, 0))])


def flatten(parts: Sequence[Sequence[Trajectory]]) -> list[Trajectory]:
    return [trajectory for part in parts for trajectory in part]
