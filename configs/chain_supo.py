"""SUPO (arXiv 2510.06727) on a chain: one advantage per rollout, overlong rollouts counted and masked.

Paper (via a replication): clip .2 and .28, no KL nor entropy, token mean. Summaries are a context manager that this config does not
have yet, so what remains is GRPO with a mask on what the horizon cut.

Expected effect, with summaries: tasks longer than the window are solved.

agentrl-train --config=configs/chain_supo.py[:base]
"""

from agentrl_jax.algorithms.methods.tools import supo
from agentrl_jax.configs.small import CHAIN, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(CHAIN)
    return small("chain-supo", CHAIN, pick(variant, "chain_supo", method=supo(**settings), base=supo(**settings, mask=None)), label="SUPO")
