"""MARS (MARSHAL, arXiv 2510.15414): its turn-level estimator on a chain of one player; `configs/kuhn_mars.py` plays a game.

Released: turn rewards centred by player, returns to go, distinct values centred, whitened; KL .2, dual clip, .05 off for a
malformed turn.

Expected effect, in games: a constant advantage of one seat vanishes from the credit.

agentrl-train --config=configs/chain_mars.py
"""

from agentrl_jax.algorithms.methods.dialogue import mars
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.configs.small import CHAIN, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    algorithm = pick(variant, "chain_mars", method=mars(**rates(CHAIN, regularisers={"kl": KL(0.2)})))
    return small("chain-mars", CHAIN, algorithm, label="MARS")
