"""Wordle with Dr.GRPO (arXiv 2503.20783) in the place of GRPO; all else is configs/wordle_grpo.py.

agentrl-train --config=configs/wordle_dr_grpo.py            about three and a half minutes on 2 CPU cores
agentrl-train --config=configs/wordle_dr_grpo.py:smoke      the same in under a minute, learns little

How it does against GRPO is in docs/methods.md.
"""

from agentrl_jax.algorithms.grpo import dr_grpo
from agentrl_jax.configs import wordle_grpo
from agentrl_jax.experiment import Experiment
from agentrl_jax.optimizer import AdamWConfig


def get_config(variant: str = "quickstart") -> Experiment:
    config = wordle_grpo.get_config(variant)
    assert config.rl
    config.name = config.name.replace("quickstart", "wordle-dr-grpo")
    config.rl.label = "Dr.GRPO"
    optimizer, longest = AdamWConfig(1e-3, warmup_steps=5), wordle_grpo.LONGEST
    config.rl.algorithm = dr_grpo(float(longest), optimizer=optimizer, minibatches=2, bin_length=longest, microbatch=32)
    return config
