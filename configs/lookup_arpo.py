"""ARPO (arXiv 2507.19849) on questions over a small store with ambiguous entries; soft and hard attribution.

Released: -1 for a malformed answer, .1 for a right answer that used all tools, KL 0, two epochs. Branching after uncertain tool
calls is a rollout strategy that this config does not have yet: with independent rollouts both attributions are GRPO, so the method
is not complete.

Expected effect, with branching: the same success for about half of the tool calls.

agentrl-train --config=configs/lookup_arpo.py[:hard]
"""

from agentrl_jax.algorithms.methods.tools import arpo
from agentrl_jax.configs.small import LOOKUP, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(LOOKUP)
    algorithm = pick(variant, "lookup_arpo", method=arpo(**settings), hard=arpo(hard=True, **settings))
    return small("lookup-arpo", LOOKUP, algorithm, label="ARPO")
