"""AEPO (arXiv 2510.14545) on questions over a small store: a probe balances first episodes and branches, branches in a row are
penalised, advantages are scaled by entropy, the upper clip keeps its gradient.

Paper: first episodes m = n sigmoid(.5 (H_root - H_tool)) + 1 of n (here 8), branch penalty .05, 1 + .2 z(H), dual clip 3.

Expected effect: entropy falls more slowly than with ARPO (`:base`: its branching and its loss) at the same success.

agentrl-train --config=configs/lookup_aepo.py[:base]
"""

from agentrl_jax.algorithms.methods.tools import aepo
from agentrl_jax.algorithms.strategies.branching import Branching
from agentrl_jax.algorithms.strategies.uncertainty import Penalised, Split
from agentrl_jax.configs.small import LOOKUP, VOCABULARY, pick, rates, small
from agentrl_jax.experiment import Experiment, Rollouts


def get_config(variant: str = "method") -> Experiment:
    settings = rates(LOOKUP)
    algorithm, strategy = pick(
        variant, "lookup_aepo", method=(aepo(**settings), Branching(VOCABULARY, 8, Split(), Penalised())),
        base=(aepo(entropy=0.0, keep_gradient=False, **settings), Branching(VOCABULARY, 8, 4)),
    )  # fmt: skip
    config = small("lookup-aepo", LOOKUP, algorithm, Rollouts(tasks=16, strategy=strategy), label="AEPO")
    config.engine.alternatives = 10
    return config
