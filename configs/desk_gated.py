"""G-RA (arXiv 2508.10548) at a desk where well-formed actions and tools pay a little each turn, and submitting ends the episode.

The gate: `format` and `tool` count only where the outcome exceeds 0. The paper's thresholds are not known; here any success opens
it.

Expected effect: without the gate (`:base`, D-RA) the policy learns never to submit: its return grows and its success falls to
nothing. With it success grows.

agentrl-train --config=configs/desk_gated.py[:base]
"""

from agentrl_jax.algorithms.methods.dialogue import gated
from agentrl_jax.configs.small import DESK, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    parts, closed, opened = ("outcome", "format", "tool"), (0.0, -float("inf")), (-float("inf"),) * 2
    settings = rates(DESK)
    algorithm = pick(variant, "desk_gated", method=gated(parts, closed, **settings), base=gated(parts, opened, **settings))
    return small("desk-gated", DESK, algorithm, steps=40, label="G-RA")
