"""GRPO on a chain whose answers take their time (log-normal, .1 s in the mean): rollouts go on while the trainer is at work.

At most 2 versions old, with the truncated importance weights of DART (arXiv 2509.23866), w = min(exp(learner - sampler), 1).
`:base` waits for every rollout before it trains, with the same algorithm, engine and worlds; `:plain` streams without the weights.

Expected effect: the success of `:base` in less time; and with `--config.rl.source.staleness=4`, steadier than `:plain`.

agentrl-train --config=configs/chain_async.py[:base|:plain]
"""

from agentrl_jax.algorithms.grpo import grpo
from agentrl_jax.algorithms.mismatch import Clipped, uncorrected
from agentrl_jax.configs.small import CHAIN, pick, rates, rollouts, small
from agentrl_jax.delays import Delay
from agentrl_jax.experiment import Experiment
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.streaming import Streaming


def get_config(variant: str = "method") -> Experiment:
    streaming = Streaming(rollouts(), staleness=2)
    source, mismatch = pick(
        variant, "chain_async",
        method=(streaming, Clipped(high=1.0)), base=(rollouts(), Clipped(high=1.0)), plain=(streaming, uncorrected),
    )  # fmt: skip
    algorithm = grpo(rescore=True, mismatch=mismatch, **rates(CHAIN, optimizer=AdamWConfig(2e-4, warmup_steps=3)))
    config = small("chain-async", CHAIN, algorithm, source, steps=40, label="GRPO", record_groups=16)
    assert config.sft
    config.sft.steps = 100
    config.environment.delay = Delay(0.1)
    config.engine.parked = 256  # three steps' episodes
    return config
