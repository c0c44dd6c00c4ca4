"""Dr.GRPO (arXiv 2503.20783) on sums with a calculator: how long are episodes that fail?

GRPO divides the loss of a trajectory by its length, so that a token of a long failure is penalized
less than one of a short failure, and failures grow long. Four numbers need three calls of the
calculator and an answer; an episode may have 16 turns, and of the demonstrated turns a fifth is
void and some calls or answers are random.

Expected effect: failed episodes are shorter than with GRPO (`:base`).

Hardware: 2 CPU cores; time: about 60 s; score: see docs/methods.md

    agentrl-train --config=configs/calculator_dr_grpo.py[:base|pair]
"""

from agentrl_jax.algorithms.methods import dr_grpo, grpo
from agentrl_jax.configs.small import (
    SmallTask,
    pick,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment

TASK = SmallTask("Calculator-v0", "mixture", 224, 8, {"terms": 4, "largest": 9, "horizon": 16})


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(TASK)
    method = dr_grpo(float(TASK.max_length), **settings)
    algorithm = pick(variant, "calculator_dr_grpo", method=method, base=grpo(**settings))
    return small_experiment("calculator-dr-grpo", TASK, algorithm, label="Dr.GRPO")
