"""AEPO (arXiv 2510.14545) on questions over a small store: entropy-balanced branching and loss.

A probe balances first episodes and branches, consecutive branches are penalized, advantages are
scaled by entropy, and the upper clip keeps its gradient. Paper: first episodes m = n sigmoid(.5
(H_root - H_tool)) + 1 of n (here 8), branch penalty .05, 1 + .2 z(H), dual clip 3.

Expected effect: entropy falls more slowly than with ARPO (`:base`: its branching and its loss) at
the same success.

Hardware: 2 CPU cores; time: about 1 minute; score: success .98, SFT .49 (seed 0)

    agentrl-train --config=configs/lookup_aepo.py[:base]
"""

from agentrl_jax.algorithms.methods.tool_use import aepo
from agentrl_jax.algorithms.strategies.branching import BranchingRollouts
from agentrl_jax.algorithms.strategies.uncertainty import AEPOBranchRule, AEPOInitialRollouts
from agentrl_jax.configs.small import LOOKUP, VOCABULARY, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(LOOKUP)
    algorithm, strategy = pick(
        variant,
        "lookup_aepo",
        method=(
            aepo(**settings),
            BranchingRollouts(VOCABULARY, 8, AEPOInitialRollouts(), AEPOBranchRule()),
        ),
        base=(
            aepo(entropy_scale=0.0, keep_gradient=False, **settings),
            BranchingRollouts(VOCABULARY, 8, 4),
        ),
    )
    config = small_experiment(
        "lookup-aepo", LOOKUP, algorithm, Rollouts(tasks=16, strategy=strategy), label="AEPO"
    )
    config.engine.alternatives = 10
    return config
