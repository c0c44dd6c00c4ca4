"""Evaluation: the same worlds for every player, mean returns with intervals."""

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.checkpoint import load_host
from agentrl_jax.experiment import EnvironmentConfig, Experiment, Mixed, RolloutFeed, Rollouts
from agentrl_jax.policy import Params, Policy
from agentrl_jax.runtime import Runtime, Strategy
from agentrl_jax.strategies import Holding, Independent, Learned, Scripted, found
from agentrl_jax.trajectories import Trajectory


def play_all(
    runtime: Runtime, environment: EnvironmentConfig, episodes: int, seed: int, player: str | None = None, temperature: float = 1.0,
    how: Strategy | None = None,
) -> list[Trajectory]:  # fmt: skip
    """One episode of each world, by a scripted player, or by the policy (`player` None) at the given temperature; `how` None: plainly."""
    tasks = [environment.task(seed + i, group=i) for i in range(episodes)]
    strategy: Strategy = how or Independent(1) if player is None else Scripted(player)
    if player is None:
        who = runtime.agents["policy"]
        evaluated = dataclasses.replace(who, sampling=dataclasses.replace(who.sampling, temperature=temperature))
        runtime = runtime.under({"policy": evaluated})
    return flatten([group.trajectories for group in runtime.collect(strategy, tasks, (seed, 0))])


def strategy_of(experiment: Experiment, run_dir: Path, name: str, runtime: Runtime, policy: Policy, params: Params) -> Strategy | None:
    """How what a phase trained plays where it is judged; None: plainly. Raises UserError where its checkpoint is missing."""
    phase = experiment.phases[name]
    strategy, source = copy.deepcopy(phase.evaluation), phase.source
    rollouts = source.rollouts if isinstance(source, Mixed) else source
    if strategy is None and isinstance(rollouts, Rollouts) and found(Learned, rollouts.strategy):
        feed, state = RolloutFeed(rollouts, runtime, experiment), load_host(run_dir / "checkpoints" / name)["feed"]
        feed.load(state if rollouts is source else state["rollouts"])
        strategy = found(Learned, feed.strategy)[0].best()
    for piece in found(Holding, strategy):
        piece.hold(policy, params, experiment.engine)
    return strategy


def flatten(parts: Sequence[Sequence[Trajectory]]) -> list[Trajectory]:
    return [trajectory for part in parts for trajectory in part]
