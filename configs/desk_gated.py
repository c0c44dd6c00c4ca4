"""G-RA (arXiv 2508.10548) at a desk with small rewards for well-formed actions and tool calls.

These are given each turn, and submitting ends the episode. The gate: `format` and `tool` count only
where the outcome exceeds 0. The paper's thresholds are not known; here any success opens it.

Expected effect: without the gate (`:base`, D-RA) the policy learns never to submit: its return
grows and its success falls to zero. With it success does not fall.

Hardware: 2 CPU cores; time: about 70 s of processor time for both sides; score:
success .25, SFT .23 over 10 seeds (docs/methods.md)

    agentrl-train --config=configs/desk_gated.py[:base|pair]
"""

from agentrl_jax.algorithms.methods.multi_turn import gated_reward_accumulation
from agentrl_jax.configs.small import DESK, pick, small_experiment, training_settings, with_pair
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    parts, closed, opened = (
        ("outcome", "format", "tool"),
        (0.0, -float("inf")),
        (-float("inf"),) * 2,
    )
    settings = training_settings(DESK)
    algorithm = pick(
        variant,
        "desk_gated",
        method=gated_reward_accumulation(parts, closed, **settings),
        base=gated_reward_accumulation(parts, opened, **settings),
    )
    return small_experiment("desk-gated", DESK, algorithm, steps=40, label="G-RA")
