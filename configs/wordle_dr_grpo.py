"""Wordle with Dr.GRPO (arXiv 2503.20783) in place of GRPO.

Everything else is configs/wordle_grpo.py. `:smoke` is the same in under a minute and learns little.
The comparison with GRPO in docs/methods.md is configs/arithmetic_dr_grpo.py.

Hardware: 2 CPU cores; time: about 5 minutes; score: return -2.90, SFT -3.83 (seed 0)

    agentrl-train --config=configs/wordle_dr_grpo.py
    agentrl-train --config=configs/wordle_dr_grpo.py:smoke
"""

from agentrl_jax.algorithms.methods import dr_grpo
from agentrl_jax.configs import wordle_grpo
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "quickstart") -> Experiment:
    config = wordle_grpo.get_config(variant)
    config.name = config.name.replace("quickstart", "wordle-dr-grpo")
    optimizer, longest = AdamWConfig(1e-3, warmup_steps=5), wordle_grpo.MAX_LENGTH
    config.phases["rl"].label, config.phases["rl"].algorithm = (
        "Dr.GRPO",
        dr_grpo(
            float(longest), optimizer=optimizer, minibatches=2, bin_length=longest, microbatch=32
        ),
    )
    return config
