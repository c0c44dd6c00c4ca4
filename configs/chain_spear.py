"""SPEAR (arXiv 2509.22601) on a chain: its own better past, replayed more and more, on a base without std.

Released: coefficient (1 - cos(pi t / T)) / 2 with T = 100 on ALFWorld, Clip-Cov on the replay, items at most 5 steps old, A' = R -
median of recent group means, clip .2 and .28, dual clip 10, the top three quarters of groups. A chain has no tools to reward. Here
T is the number of steps, and the store is drawn from once it holds more than 96 episodes.

Expected effect: faster than the base without replay (`:base`) where success is rare.

agentrl-train --config=configs/chain_spear.py[:base]
"""

from agentrl_jax.algorithms.methods.tools import spear
from agentrl_jax.configs.small import CHAIN, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings, steps = rates(CHAIN), 36
    algorithm = pick(
        variant, "chain_spear",
        method=spear(float(CHAIN.longest), steps=steps, tools=False, size=64, filter=None, **settings),
        base=spear(float(CHAIN.longest), tools=False, auxiliaries=(), filter=None, **settings),
    )  # fmt: skip
    return small("chain-spear", CHAIN, algorithm, steps=steps, label="SPEAR")
