"""MinD (arXiv 2505.19788): GRPO with a penalty for turns that hold several thinking units; its decomposed turns are a context
manager to come.

Weights, and the test for several units, are not published: the marker here is a second "=", the weights .1.

Expected effect, with decomposed turns: as accurate with fewer tokens.

agentrl-train --config=configs/arithmetic_mind.py
"""

from agentrl_jax.algorithms.methods.dialogue import mind
from agentrl_jax.configs.small import ARITHMETIC, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    algorithm = pick(variant, "arithmetic_mind", method=mind(0.1, ("=",), 0.1, **rates(ARITHMETIC)))
    return small("arithmetic-mind", ARITHMETIC, algorithm, label="MinD")
