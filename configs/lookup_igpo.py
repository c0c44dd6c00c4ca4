"""IGPO (arXiv 2510.14967) on questions over a small store: information gain as the turn reward.

The reward of a look-up is how much likelier it made the right answer. Paper: turn rewards P(t) -
P(t-1), the outcome on the last turn, -2 for a malformed answer, z over all turns of the group, clip
.2, KL and entropy .001. gamma is not stated; 1 here.

Expected effect: groups whose outcomes tie still give a signal, and learning is faster than with the
outcome alone (`:base`, GRPO).

Hardware: 2 CPU cores; time: about 71 s; score: see docs/methods.md

    agentrl-train --config=configs/lookup_igpo.py[:base|pair]
"""

from agentrl_jax.algorithms.advantages.group import group_normalized
from agentrl_jax.algorithms.advantages.trajectory_checks import is_malformed
from agentrl_jax.algorithms.experience.penalties import ReplaceRewards
from agentrl_jax.algorithms.methods.tool_use import igpo
from agentrl_jax.algorithms.policy_gradient.answer_probe import AnswerProbe
from agentrl_jax.configs.small import (
    LOOKUP,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(LOOKUP)
    base = igpo(
        **settings, advantage=group_normalized, rewards=ReplaceRewards("format", -2.0, is_malformed)
    )
    algorithm = pick(
        variant, "lookup_igpo", method=igpo(**settings, probe=AnswerProbe("answer ")), base=base
    )
    return small_experiment("lookup-igpo", LOOKUP, algorithm, rollouts(4), steps=60, label="IGPO")
