"""SCoRe (arXiv 2409.12917) on sums with two attempts, both scored.

The instruction between the attempts carries no information. Paper (mathematics): alpha 10, beta1
.01, beta2 .1, and an instruction of 30 words (`self_correction.MATH_CORRECTION_PROMPT`), which here
has 5, those that the environment's own second attempt begins with, so that training and evaluation
agree. How many steps the first stage takes is not stated; here a third.

Expected effect: the second attempt is better than the first, by more than with REINFORCE on both
rewards (`:base`).

Hardware: 2 CPU cores; time: about 66 s; score: see docs/methods.md

    agentrl-train --config=configs/arithmetic_score.py[:base|pair]
"""

from agentrl_jax.algorithms.methods.multi_turn import self_correcting
from agentrl_jax.algorithms.strategies.self_correction import SelfCorrectionRollouts
from agentrl_jax.configs.small import (
    TWO_ATTEMPTS,
    pick,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.envs.diagnostic.arithmetic import NEUTRAL_FEEDBACK
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings, steps = training_settings(TWO_ATTEMPTS), 36
    base = self_correcting(0, alpha=0.0, beta1=0.01, beta2=0.01, gamma=1.0, **settings)
    algorithm = pick(
        variant, "arithmetic_score", method=self_correcting(steps // 3, **settings), base=base
    )
    source = Rollouts(
        tasks=16, strategy=SelfCorrectionRollouts(group_size=8, instruction=f"{NEUTRAL_FEEDBACK}\n")
    )
    return small_experiment(
        "arithmetic-score", TWO_ATTEMPTS, algorithm, source, steps=steps, label="SCoRe"
    )
