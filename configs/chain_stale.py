"""GRPO from stale samples on a chain: DART's truncated importance weights (arXiv 2509.23866).

Rollouts go on while the trainer works, and are at most 4 versions of the weights old. The weights
are w = min(exp(learner - sampler), 1); `:base` has none.

Expected effect: success falls back less than without the weights.

Hardware: 2 CPU cores; time: about a minute for `:pair` (docs/methods.md)

    agentrl-train --config=configs/chain_stale.py[:base|pair]
"""

from agentrl_jax.algorithms.losses.importance import TruncatedIS, no_correction
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs.small import (
    SHORT_CHAIN,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    mismatch = pick(variant, "chain_stale", method=TruncatedIS(high=1.0), base=no_correction)
    algorithm = grpo(rescore=True, mismatch=mismatch, **training_settings(SHORT_CHAIN))
    source = AsyncRollouts(rollouts(tasks=4), staleness=4)
    config = small_experiment(
        "chain-stale", SHORT_CHAIN, algorithm, source, steps=40, label="GRPO", record_groups=16
    )
    config.engine.parked_slots = 256  # three steps' episodes
    return config
