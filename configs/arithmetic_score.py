"""SCoRe (arXiv 2409.12917) on sums with two attempts, both scored, and an instruction between them that tells nothing.

Paper (mathematics): alpha 10, beta1 .01, beta2 .1, and an instruction of 30 words (`two_attempts.MATHEMATICS`), which here has 5, those
that the world's own second attempt begins with, so that it is evaluated as it is trained. How many steps the first stage takes is not
stated; here a third.

Expected effect: the second attempt is better than the first, more so than with REINFORCE on both rewards (`:base`).

agentrl-train --config=configs/arithmetic_score.py[:base]
"""

from agentrl_jax.algorithms.methods.dialogue import self_correcting
from agentrl_jax.algorithms.strategies.two_attempts import TwoAttempts
from agentrl_jax.configs.small import TWO_ATTEMPTS, pick, rates, small
from agentrl_jax.envs.probes.arithmetic import UNREVEALING
from agentrl_jax.experiment import Experiment, Rollouts


def get_config(variant: str = "method") -> Experiment:
    settings, steps = rates(TWO_ATTEMPTS), 36
    base = self_correcting(0, alpha=0.0, beta1=0.01, beta2=0.01, gamma=1.0, **settings)
    algorithm = pick(variant, "arithmetic_score", method=self_correcting(steps // 3, **settings), base=base)
    source = Rollouts(tasks=16, strategy=TwoAttempts(group_size=8, instruction=f"{UNREVEALING}\n"))
    return small("arithmetic-score", TWO_ATTEMPTS, algorithm, source, steps=steps, label="SCoRe")
