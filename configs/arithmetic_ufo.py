"""UFO (arXiv 2507.14295) on sums with five attempts, of which a wrong one is answered "Incorrect. Please think again." and no more.

Paper and released code agree: success at attempt k earns 2^-k, repeated answers cost up to .5, a malformed turn .1; PPO with gamma
= lambda = 1, clip .2 and .28, entropy and KL .001, the quarter of groups whose rewards vary most. Smaller here: model, rates,
batches, and three quarters of the groups, since a batch has 16 and not many more.

Expected effect: among the answers of an episode more are different than with PPO on the plain outcome (`:base`), and fewer turns
are needed.

agentrl-train --config=configs/arithmetic_ufo.py[:base]
"""

from agentrl_jax.algorithms.methods.critics import ppo, ufo
from agentrl_jax.algorithms.rewards import Outcome
from agentrl_jax.algorithms.surrogates import PPO
from agentrl_jax.configs.small import ARITHMETIC, HEAD, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(ARITHMETIC)
    base = ppo(HEAD, surrogate=PPO(0.2, 0.28), rewards=Outcome(), **settings)
    algorithm = pick(variant, "arithmetic_ufo", method=ufo(HEAD, share=0.75, **settings), base=base)
    return small("arithmetic-ufo", ARITHMETIC, algorithm, label="UFO", players=("random", "repeater", "expert"))
