"""VLA-RL (arXiv 2505.18719) behind a door: an action of several tokens is one step, with a curriculum over sixteen rooms.

Released: gamma .99, lambda .95 over steps, one ratio a step, clip .2, value clip .2, 5 updates of the critic alone, rate of the
critic ten times the policy's. The formula of its curriculum prefers what fails (`:method`); its wording, about half solved, is
`:half`. Its reward model of robot states has no counterpart here.

Expected effect: without warm-up and curriculum (`:base`) less success.

agentrl-train --config=configs/keydoor_vla_rl.py[:base|half]
"""

from agentrl_jax.algorithms.critics import CriticConfig, turn_starts
from agentrl_jax.algorithms.methods.critics import vla_rl
from agentrl_jax.algorithms.schedules import SuccessDriven, half_solved_first
from agentrl_jax.configs.small import HEAD, KEY_DOOR, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment
from agentrl_jax.optimizer import AdamWConfig


def get_config(variant: str = "method") -> Experiment:
    def method(warmup: int):
        critic = CriticConfig(HEAD, AdamWConfig(3e-3), aggregation=turn_starts, warmup=warmup)
        return vla_rl(HEAD, **rates(KEY_DOOR, critic=critic))

    algorithm, order = pick(
        variant, "keydoor_vla_rl",
        method=(method(5), SuccessDriven(0.5)), half=(method(5), SuccessDriven(0.5, half_solved_first)), base=(method(0), None),
    )  # fmt: skip
    return small("keydoor-vla-rl", KEY_DOOR, algorithm, rollouts(worlds=16, order=order), steps=40, label="VLA-RL")
