"""WebAgent-R1's M-GRPO (arXiv 2505.16421) on a chain: three nested means over rollouts, actions and tokens.

Released: KL .001, std + 1e-4, gradient clip .01. Placeholders for old observations are a context manager that this config does not
have yet: the context is the whole history, and every action is scored in the one it was sampled in.

Expected effect: a short rollout weighs as much as a long one; success as with GRPO (`:base`) or better on long episodes.

agentrl-train --config=configs/chain_webagent_r1.py[:base]
"""

from agentrl_jax.algorithms.aggregation import token_mean
from agentrl_jax.algorithms.methods.tools import webagent_r1
from agentrl_jax.configs.small import CHAIN, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(CHAIN)
    algorithm = pick(variant, "chain_webagent_r1", method=webagent_r1(**settings), base=webagent_r1(**settings, aggregation=token_mean))
    return small("chain-webagent-r1", CHAIN, algorithm, label="M-GRPO")
