"""INSPO (arXiv 2512.01945): with one instruction its update is GRPO; the population of instructions is a context manager to come.

N, its temperature and the intervals of pruning are not published.

Expected effect, with a population: instructions that earn more are drawn more often, and success grows beyond GRPO's.

agentrl-train --config=configs/lookup_inspo.py
"""

from agentrl_jax.algorithms.methods.tools import inspo
from agentrl_jax.configs.small import LOOKUP, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    return small("lookup-inspo", LOOKUP, pick(variant, "lookup_inspo", method=inspo(**rates(LOOKUP))), label="INSPO")
