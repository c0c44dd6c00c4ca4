"""AEPO (arXiv 2510.14545) on searching: entropy-balanced branching and loss.

A probe balances first episodes and branches, consecutive branches are penalized, advantages are
scaled by entropy, and the upper clip keeps its gradient. Paper: first episodes m = n sigmoid(.5
(H_root - H_tool)) + 1 of n (here 8), branch penalty .05, 1 + .2 z(H), dual clip 3.

Expected effect: entropy falls more slowly than with ARPO (`:base`: its branching and its loss) at
the same success.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/search_aepo.py[:base|pair]
"""

from agentrl_jax.algorithms.methods import aepo
from agentrl_jax.algorithms.strategies.branching import BranchingRollouts
from agentrl_jax.algorithms.strategies.uncertainty import AEPOBranchRule, AEPOInitialRollouts
from agentrl_jax.configs.search_task import TRAINING_SETTINGS, VOCABULARY, search_experiment
from agentrl_jax.configs.small import pick, with_pair
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


@with_pair
def get_config(variant: str = "method") -> Experiment:
    method = aepo(**TRAINING_SETTINGS)
    base = aepo(entropy_scale=0.0, keep_gradient=False, **TRAINING_SETTINGS)
    algorithm = pick(variant, "search_aepo", method=method, base=base, smoke=method)
    strategy = BranchingRollouts(VOCABULARY, 8, AEPOInitialRollouts(), AEPOBranchRule())
    if variant == "base":
        strategy = BranchingRollouts(VOCABULARY, 8, 4)
    source, smoke = Rollouts(2 if variant == "smoke" else 4, strategy), variant == "smoke"
    name = f"search-aepo-{variant}"
    config = search_experiment(name, algorithm, source, smoke, {"reward": "f1"})
    config.engine.alternatives = 10
    return config
