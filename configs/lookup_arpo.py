"""ARPO (arXiv 2507.19849) on questions over a small store: branches where entropy is high.

More episodes branch where the policy is uncertain after a look-up. Released: half of a group's
episodes start at the root (8 of 16, here 4 of 8), at most one branch of each at a time, weight .2,
entropies of the first 20 tokens over the 10 likeliest ones; -1 for a malformed answer, .1 for a
right answer that used all tools, KL 0, two epochs. Attribution is soft, or `:hard`. One tool finds
entries; in `:tools` each relation has a tool of its own, and using both is rewarded.

Expected effect: the success of independent episodes (`:base`, as many per group) with fewer tool
calls (`rollout/turns_played`).

Hardware: 2 CPU cores; time: about 72 s; score: see docs/methods.md

    agentrl-train --config=configs/lookup_arpo.py[:hard|tools|base|pair]
"""

from agentrl_jax.algorithms.methods.tool_use import arpo
from agentrl_jax.algorithms.strategies.branching import BranchingRollouts
from agentrl_jax.configs.small import (
    LOOKUP,
    LOOKUP_TOOLS,
    VOCABULARY,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(LOOKUP)
    branches = Rollouts(
        tasks=16, strategy=BranchingRollouts(VOCABULARY, group_size=8, initial_rollouts=4)
    )
    task, algorithm, source = pick(
        variant,
        "lookup_arpo",
        method=(LOOKUP, arpo(**settings), branches),
        hard=(LOOKUP, arpo(hard_attribution=True, **settings), branches),
        tools=(LOOKUP_TOOLS, arpo(tools=("boss", "pal"), **settings), branches),
        base=(LOOKUP, arpo(**settings), rollouts()),
    )
    config = small_experiment("lookup-arpo", task, algorithm, source, label="ARPO")
    config.engine.alternatives = 10
    return config
