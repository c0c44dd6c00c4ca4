"""IGPO (arXiv 2510.14967) on questions over a small store: a look-up earns how much likelier it made the right answer.

Paper: turn rewards P(t) - P(t-1), the outcome on the last turn, -2 for a malformed answer, z over all turns of the group, clip .2,
KL and entropy .001. gamma is not stated; 1 here.

Expected effect: groups whose outcomes tie still give a signal, and learning is faster than with the outcome alone (`:base`, GRPO).

agentrl-train --config=configs/lookup_igpo.py[:base]
"""

from agentrl_jax.algorithms.advantages import group_normalized
from agentrl_jax.algorithms.methods.tools import igpo
from agentrl_jax.algorithms.probing import GoldProbe
from agentrl_jax.algorithms.quality import malformed
from agentrl_jax.algorithms.rewards import InsteadOfAll
from agentrl_jax.configs.small import LOOKUP, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(LOOKUP)
    base = igpo(**settings, advantage=group_normalized, rewards=InsteadOfAll("format", -2.0, malformed))
    algorithm = pick(variant, "lookup_igpo", method=igpo(**settings, probe=GoldProbe("answer ")), base=base)
    return small("lookup-igpo", LOOKUP, algorithm, label="IGPO")
