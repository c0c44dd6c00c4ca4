"""ARPO (arXiv 2507.19849) on questions over a small store: more episodes where the policy is uncertain after a look-up.

Released: half of a group's episodes start at the root (8 of 16, here 4 of 8), at most one branch of each at a time, weight .2, entropies of
the first 20 tokens over the 10 likeliest ones; -1 for a malformed answer, .1 for a right answer that used all tools, KL 0, two
epochs. Attribution is soft, or `:hard`.

Expected effect: the success of independent episodes (`:base`, as many to a group) for fewer tool calls (`rollout/turns_played`).

agentrl-train --config=configs/lookup_arpo.py[:hard|base]
"""

from agentrl_jax.algorithms.methods.tools import arpo
from agentrl_jax.algorithms.strategies.branching import Branching
from agentrl_jax.configs.small import LOOKUP, VOCABULARY, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment, Rollouts


def get_config(variant: str = "method") -> Experiment:
    settings = rates(LOOKUP)
    branches = Rollouts(tasks=16, strategy=Branching(VOCABULARY, group_size=8, first=4))
    algorithm, source = pick(
        variant, "lookup_arpo", method=(arpo(**settings), branches), hard=(arpo(hard=True, **settings), branches),
        base=(arpo(**settings), rollouts()),
    )  # fmt: skip
    config = small("lookup-arpo", LOOKUP, algorithm, source, label="ARPO")
    config.engine.alternatives = 10
    return config
