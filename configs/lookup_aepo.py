"""AEPO (arXiv 2510.14545) on questions over a small store: advantages scaled by entropy, an upper clip that keeps its gradient.

Paper: 1 + .2 z(H), dual clip 3. The balance between first rollouts and branches is a rollout strategy that this config does not
have yet.

Expected effect: entropy falls more slowly than with ARPO's loss (`:base`) at the same success.

agentrl-train --config=configs/lookup_aepo.py[:base]
"""

from agentrl_jax.algorithms.methods.tools import aepo
from agentrl_jax.configs.small import LOOKUP, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(LOOKUP)
    base = aepo(entropy=0.0, keep_gradient=False, **settings)
    return small("lookup-aepo", LOOKUP, pick(variant, "lookup_aepo", method=aepo(**settings), base=base), label="AEPO")
