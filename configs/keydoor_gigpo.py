"""GiGPO (arXiv 2505.10978) in rooms: steps taken in the same state are compared with each other.

Released: gamma .95, weight 1, means only. An episode that wanders visits a state several times, and
what it still needs from there differs by many turns. Where a mistake costs one turn, as in
chain_gigpo.py, returns-to-go from a state differ by little but the outcome, which the episode's
advantage already tells.

Expected effect: faster than with the episode's advantage alone (`:base`).

Hardware: 2 CPU cores; time: about 100 s; score: see docs/methods.md

    agentrl-train --config=configs/keydoor_gigpo.py[:base|pair]
"""

from agentrl_jax.algorithms.methods.group_relative import gigpo
from agentrl_jax.configs.small import (
    SmallTask,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment

ROOMS = SmallTask(
    "KeyDoor-v0",
    "weak",
    192,
    6,
    {"width": 4, "height": 3, "walls": 0, "horizon": 12},
    sft_steps=150,
)


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(ROOMS)
    algorithm = pick(
        variant, "keydoor_gigpo", method=gigpo(**settings), base=gigpo(weight=0.0, **settings)
    )
    return small_experiment("keydoor-gigpo", ROOMS, algorithm, rollouts(8), steps=40, label="GiGPO")
