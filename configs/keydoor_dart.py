"""DART (arXiv 2509.23866) behind a door: off-policy samples with truncated importance weights.

Every step is a sample, and groups are curated. Released: w = min(exp(old - rollout), 1), GSPO or
PPO with clip .1 and .28, dual clip 10, KL .1, groups cropped to 8 with a success and a failure, the
newest stored success in an all-failed group, two versions of the weights, the 80 % of steps with
the highest entropy (in the code commented out). Its four modules are all here (docs/asynchrony.md):
environments, rollouts, the index of trajectories and the trainer, none waiting for another, with
samples at most 2 versions old. On several devices `--config.engine.engines=2` makes a pool whose
weights are swapped one engine at a time. The number of rollouts that follows success is no part of
this config.

Expected effect: learning from stale samples is steadier than without the weights (`:base`).

Hardware: 2 CPU cores; time: about 404 s; score: success .69 over 3 seeds (an earlier config)

    agentrl-train --config=configs/keydoor_dart.py[:base]
"""

from agentrl_jax.algorithms.methods.gui import dart
from agentrl_jax.configs.small import KEY_DOOR, pick, rollouts, small_experiment, training_settings
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.task_set import TaskSet


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(KEY_DOOR)
    algorithm = pick(
        variant,
        "keydoor_dart",
        method=dart(**settings),
        base=dart(max_importance_weight=float("inf"), **settings),
    )
    streaming = AsyncRollouts(rollouts(task_source=TaskSet(16)), staleness=2)
    return small_experiment(
        "keydoor-dart", KEY_DOOR, algorithm, streaming, steps=40, label="DART", record_groups=16
    )
