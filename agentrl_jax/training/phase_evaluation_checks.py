"""Checks of the evaluations while training, before anything is built."""

import math

from agentrl_jax.errors import UserError
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.seeds import ENV_SEED_END, check_seed


def check_phase_evaluation(experiment: Experiment, name: str, phase: Phase) -> None:
    """Raises UserError where a phase cannot be evaluated while it trains as its config says."""
    location, best = f"config.phases.{name}", phase.best
    if min(phase.evaluate_every, best.patience) < 0 or best.min_improvement < 0:
        raise UserError(
            f"{location}: evaluate_every, best.patience and best.min_improvement must be at least 0"
        )
    if (best.patience or best.restore or best.min_improvement) and not best.metric:
        raise UserError(
            f"{location}.best: patience, restore and min_improvement need a metric, such as "
            "'evaluation/return'"
        )
    if best.metric and not phase.evaluate_every:
        raise UserError(f"{location}.best.metric needs evaluate_every, which is 0")
    if phase.evaluate_every:
        _check_tasks(experiment, location, phase)
        _check_steps(location, phase)


def _check_tasks(experiment: Experiment, location: str, phase: Phase) -> None:
    evaluation = experiment.evaluation
    if not phase.rows():
        raise UserError(f"{location} trains no agent: leave evaluate_every out")
    if not evaluation.environments and not experiment.environment.name:
        raise UserError(f"{location}.evaluate_every needs an environment: name one")
    if evaluation.training_episodes < 1:
        raise UserError(
            f"{location}.evaluate_every needs config.evaluation.training_episodes of at least 1"
        )
    check_seed("config.evaluation.training_seed", evaluation.training_seed, ENV_SEED_END)
    first, last = evaluation.seed, evaluation.seed + evaluation.episodes
    end = evaluation.training_seed + evaluation.training_episodes
    if max(first, evaluation.training_seed) < min(last, end):
        raise UserError(
            "config.evaluation: the seeds from training_seed on are those of the evaluation after "
            "a phase, from seed on: set training_seed further away"
        )


def _check_steps(location: str, phase: Phase) -> None:
    if phase.source.on_policy and phase.evaluate_every % phase.publish_every:
        raise UserError(
            f"{location}: weights are published every {phase.publish_every} steps: evaluate_every "
            "must be a multiple of that"
        )
    drains = isinstance(phase.source, AsyncRollouts) and phase.source.drain_at_checkpoints
    if drains and phase.best.metric and phase.evaluate_every % phase.checkpoint_every:
        raise UserError(
            f"{location}: rollouts are drained every {phase.checkpoint_every} steps, for "
            "checkpoints, of which a new best value is one: evaluate_every must be a multiple of "
            "checkpoint_every"
        )
    if not math.isfinite(phase.best.min_improvement):
        raise UserError(f"{location}.best.min_improvement must be finite")
