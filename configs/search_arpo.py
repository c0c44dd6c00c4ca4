"""ARPO (arXiv 2507.19849) on searching: episodes branch where the policy is uncertain after a
result.

Released: half of a group's episodes start at the root (8 of 16, here 4 of 8), weight .2, entropies
of the first 20 tokens over the 10 likeliest ones; F1, or -1 for a malformed answer, KL 0, two
epochs. Attribution is soft, or `:hard`.

Expected effect: the success of independent episodes (`:base`) with fewer searches.

Hardware: 2 CPU cores; neither time nor score has been measured

    agentrl-train --config=configs/search_arpo.py[:hard|base|pair]
"""

from agentrl_jax.algorithms.methods import arpo
from agentrl_jax.algorithms.strategies.branching import BranchingRollouts
from agentrl_jax.configs.search_task import TRAINING_SETTINGS, VOCABULARY, search_experiment
from agentrl_jax.configs.small import pick, with_pair
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


@with_pair
def get_config(variant: str = "method") -> Experiment:
    branches = BranchingRollouts(VOCABULARY, group_size=8, initial_rollouts=4)
    strategy = pick(
        variant,
        "search_arpo",
        method=branches,
        hard=branches,
        base=IndependentEpisodes(8),
        smoke=branches,
    )
    algorithm = arpo(hard_attribution=variant == "hard", **TRAINING_SETTINGS)
    source, smoke = Rollouts(2 if variant == "smoke" else 4, strategy), variant == "smoke"
    name = f"search-arpo-{variant}"
    config = search_experiment(name, algorithm, source, smoke, {"reward": "f1"})
    config.engine.alternatives = 10
    return config
