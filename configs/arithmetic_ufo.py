"""UFO (arXiv 2507.14295) on sums with five attempts.

The only observation after a wrong attempt is "Incorrect. Please think again.". Paper and released
code agree: success at attempt k has reward 2^-k, repeated answers cost up to .5, a malformed turn
.1; PPO with gamma = lambda = 1, clip .2 and .28, entropy and KL .001, the quarter of groups whose
rewards vary most. Smaller here: model, learning rates, batches, and three quarters of the groups,
since a batch has 16 and not many more.

Expected effect: more of an episode's answers are distinct than with PPO on the plain outcome
(`:base`), and fewer turns are needed.

Hardware: 2 CPU cores; time: about 41 s; score: success .98 over 6 seeds (docs/methods.md)

    agentrl-train --config=configs/arithmetic_ufo.py[:base]
"""

from agentrl_jax.algorithms.experience.rewards import OutcomeReward
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.methods import ppo, ufo
from agentrl_jax.configs.small import (
    ARITHMETIC,
    CRITIC_HEAD,
    pick,
    small_experiment,
    training_settings,
)
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(ARITHMETIC)
    base = ppo(CRITIC_HEAD, surrogate=PPO(0.2, 0.28), rewards=OutcomeReward(), **settings)
    algorithm = pick(
        variant,
        "arithmetic_ufo",
        method=ufo(CRITIC_HEAD, group_fraction=0.75, **settings),
        base=base,
    )
    return small_experiment(
        "arithmetic-ufo",
        ARITHMETIC,
        algorithm,
        label="UFO",
        players=("random", "repeater", "expert"),
    )
