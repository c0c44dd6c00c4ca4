"""GRPO on a chain with slow environments: rollouts continue while the trainer works.

Environment latencies are log-normal with a mean of .1 s. Samples are at most 2 versions old, with
the truncated importance weights of DART (arXiv 2509.23866), w = min(exp(learner - sampler), 1).
`:base` waits for every rollout before it trains, with the same algorithm, engine and environments;
`:plain` streams without the weights; `:stale` trains `:plain` and the method from one fine-tuning.

Expected effect: the success of `:base` in less time; and steadier than `:plain` with
`--config.phases.rl.source.staleness=4`.

Hardware: 2 CPU cores; time: about 129 s; score: success 1.00 over 3 seeds (docs/methods.md)

    agentrl-train --config=configs/chain_async.py[:base|:plain|:stale|:pair]
"""

from agentrl_jax.algorithms.losses.importance import TruncatedIS, no_correction
from agentrl_jax.algorithms.methods import grpo
from agentrl_jax.configs.small import (
    CHAIN,
    from_one_start,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.async_rollouts import AsyncRollouts
from agentrl_jax.training.config import Experiment
from agentrl_jax.workers.latency import EnvLatency


@with_pair
def get_config(variant: str = "method") -> Experiment:
    if variant == "stale":
        return from_one_start(base=get_config("plain"), method=get_config())
    streaming = AsyncRollouts(rollouts(), staleness=2)
    source, mismatch = pick(
        variant,
        "chain_async",
        method=(streaming, TruncatedIS(high=1.0)),
        base=(rollouts(), TruncatedIS(high=1.0)),
        plain=(streaming, no_correction),
    )
    algorithm = grpo(
        rescore=True,
        mismatch=mismatch,
        **training_settings(CHAIN, optimizer=AdamWConfig(2e-4, warmup_steps=3)),
    )
    config = small_experiment(
        "chain-async", CHAIN, algorithm, source, steps=40, label="GRPO", record_groups=16
    )
    config.phases["sft"].steps = 100
    config.environment.delay = EnvLatency(0.1)
    config.engine.parked_slots = 256  # three steps' episodes
    return config
