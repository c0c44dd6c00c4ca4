"""VLA-RL (arXiv 2505.18719) behind a door: an action of several tokens is one step.

With a curriculum over sixteen rooms. Released: gamma .99, lambda .95 over steps, one ratio a step,
clip .2, value clip .2, 5 updates of the critic alone, the critic's learning rate ten times the
policy's. The formula of its curriculum prefers rooms that fail (`:method`); its wording, about half
solved, is `:half`. Its reward model of robot states has no counterpart here.

Expected effect: without warm-up and curriculum (`:base`) less success.

Hardware: 2 CPU cores; time: about 6 minutes; score: success .68, SFT .37 (seed 0)

    agentrl-train --config=configs/keydoor_vla_rl.py[:base|half]
"""

from agentrl_jax.algorithms.experience.schedules import SuccessRateSampler, half_solved_task_probs
from agentrl_jax.algorithms.methods import vla_rl
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig, first_token_mean
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    KEY_DOOR,
    pick,
    rollouts,
    small_experiment,
    training_settings,
)
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.task_set import TaskSet


def get_config(variant: str = "method") -> Experiment:
    def method(warmup: int):
        critic = CriticConfig(
            CRITIC_HEAD, AdamWConfig(3e-3), aggregation=first_token_mean, warmup_steps=warmup
        )
        return vla_rl(CRITIC_HEAD, **training_settings(KEY_DOOR, critic=critic))

    algorithm, order = pick(
        variant,
        "keydoor_vla_rl",
        method=(method(5), SuccessRateSampler(0.5)),
        half=(method(5), SuccessRateSampler(0.5, half_solved_task_probs)),
        base=(method(0), None),
    )
    return small_experiment(
        "keydoor-vla-rl",
        KEY_DOOR,
        algorithm,
        rollouts(task_source=TaskSet(16, order)),
        steps=40,
        label="VLA-RL",
    )
