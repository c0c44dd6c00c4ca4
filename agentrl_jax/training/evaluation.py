"""Evaluation: the same tasks for every player."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.checkpoint import load_host_state
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.lazy_tasks import Tasks
from agentrl_jax.rollout.runtime import Runtime, Strategy
from agentrl_jax.rollout.strategy import IndependentEpisodes, ScriptedEpisodes, find_pieces
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import MixedSource, Rollouts, load_strategy
from agentrl_jax.trajectories import Trajectory


def play_all(
    runtime: Runtime,
    tasks: Tasks,
    seed: int,
    player: str | None = None,
    temperature: float = 1.0,
    policy_strategy: Strategy | None = None,
) -> list[Trajectory]:
    """The trajectories of one player, this process's part of them.

    Args:
        runtime: with the agents that the strategy names, unless a player is named.
        tasks: an episode each.
        seed: of the random numbers.
        player: a scripted policy of the environment; None: the policy.
        temperature: of the sampling of all trainable agents.
        policy_strategy: how the policy plays; None: independent episodes of the agent "policy".
    """
    strategy: Strategy
    if player is None:
        strategy = policy_strategy or IndependentEpisodes(1)
        runtime = with_temperature(runtime, temperature)
    else:
        strategy = ScriptedEpisodes(player)
    return flatten([group.trajectories for group in runtime.collect(strategy, tasks, (seed, 0))])


def with_temperature(runtime: Runtime, temperature: float) -> Runtime:
    """The runtime with this temperature of all trainable agents."""
    return runtime.with_agents(
        {
            name: dataclasses.replace(
                agent, sampling=dataclasses.replace(agent.sampling, temperature=temperature)
            )
            for name, agent in runtime.agents.items()
            if agent.trainable
        }
    )


def evaluation_strategy(
    experiment: Experiment,
    run_dir: Path,
    name: str,
    policy: Policy,
    params: Params,
    process_group: ProcessGroup | None = None,
    step: int | None = None,
) -> Strategy | None:
    """How the policy that a phase trained plays in its evaluation; None: independent episodes.

    Args:
        experiment: the config of the run.
        run_dir: where the phase's checkpoint is.
        name: of the phase.
        policy: the model.
        params: the parameters that are evaluated.
        process_group: whose processes call this together; None: this one alone.
        step: of the checkpoint; None: the newest.

    Raises:
        UserError: the checkpoint is missing or damaged.
    """
    folder = run_dir / "checkpoints" / name

    def load_feed() -> Any:
        return load_host_state(folder, process_group, step)["feed"]

    return phase_strategy(experiment, name, policy, params, load_feed)


def phase_strategy(
    experiment: Experiment,
    name: str,
    policy: Policy,
    params: Params,
    load_feed: Callable[[], Any],
) -> Strategy | None:
    """As `evaluation_strategy`; `load_feed` gives the state of the phase's experience, which is
    needed only where its rollouts learn how to play.
    """
    phase = experiment.phases[name]
    strategy, source = copy.deepcopy(phase.evaluation_strategy), phase.source
    rollouts = source.rollouts if isinstance(source, MixedSource) else source
    if (
        strategy is None
        and isinstance(rollouts, Rollouts)
        and best_strategy(rollouts.strategy) is not None
    ):
        state = load_feed()
        rollouts_state = state if rollouts is source else state["rollouts"]
        strategy = best_strategy(load_strategy(rollouts, rollouts_state))
    for piece in find_pieces(strategy):
        piece.set_policy(policy, params, experiment.engine)
    return strategy


def best_strategy(strategy: Strategy) -> Strategy | None:
    """The best way to play that the outermost piece of a strategy has learned, or None."""
    best_strategies = (piece.best_strategy() for piece in find_pieces(strategy))
    return next((best for best in best_strategies if best is not None), None)


def flatten(parts: Sequence[Sequence[Trajectory]]) -> list[Trajectory]:
    return [trajectory for part in parts for trajectory in part]
