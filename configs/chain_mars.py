"""MARS (MARSHAL, arXiv 2510.15414): its turn-level estimator on a single-agent chain.

`configs/kuhn_mars.py` plays a game. Released: turn rewards centered by player, returns to go,
distinct values centered, whitened; KL .2, dual clip, a penalty of .05 for a malformed turn.

Expected effect, in games: a constant advantage of one player index vanishes from the credit.

Hardware: 2 CPU cores; time: about 2 minutes; score: success 1.00, SFT .72 (seed 0)

    agentrl-train --config=configs/chain_mars.py
"""

from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods.multi_turn import mars
from agentrl_jax.configs.small import CHAIN, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    algorithm = pick(
        variant, "chain_mars", method=mars(**training_settings(CHAIN, regularizers={"kl": KL(0.2)}))
    )
    return small_experiment("chain-mars", CHAIN, algorithm, label="MARS")
