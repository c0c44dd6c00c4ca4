"""GiGPO (arXiv 2505.10978) on a chain: steps taken in the same state are compared with each other.

Released: gamma .95, weight 1, means only.

Expected effect: faster than with the episode's advantage alone (`:base`).

agentrl-train --config=configs/chain_gigpo.py[:base]
"""

from agentrl_jax.algorithms.methods.groups import gigpo
from agentrl_jax.configs.small import CHAIN, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(CHAIN)
    algorithm = pick(variant, "chain_gigpo", method=gigpo(**settings), base=gigpo(weight=0.0, **settings))
    return small("chain-gigpo", CHAIN, algorithm, label="GiGPO")
