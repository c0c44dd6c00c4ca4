"""GiGPO (arXiv 2505.10978) on a chain: steps taken in the same state are compared with each other.

Released: gamma .95, weight 1, means only.

Expected effect: none beside the episode's advantage alone (`:base`): a wrong letter costs one turn,
so from the same state returns differ by little but the outcome. configs/keydoor_gigpo.py compares
the two in rooms.

Hardware: 2 CPU cores; time: about 91 s; score: success 1.00 over 3 seeds (an earlier config)

    agentrl-train --config=configs/chain_gigpo.py[:base]
"""

from agentrl_jax.algorithms.methods.group_relative import gigpo
from agentrl_jax.configs.small import CHAIN, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(CHAIN)
    algorithm = pick(
        variant, "chain_gigpo", method=gigpo(**settings), base=gigpo(weight=0.0, **settings)
    )
    return small_experiment("chain-gigpo", CHAIN, algorithm, label="GiGPO")
