"""UFO (arXiv 2507.14295) on sums and differences with five attempts.

The only observation after a wrong attempt is "Incorrect. Please think again.". Paper and released
code agree: success at attempt k has reward 2^-k, repeated answers cost up to .5, a malformed turn
.1; PPO with gamma = lambda = 1, clip .2 and .28, entropy and KL .001, the quarter of groups whose
rewards vary most. Smaller here: model, learning rates, batches, and three quarters of the groups,
since a batch has 8 and not many more.

`:base` is PPO on episodes of one attempt, which the paper compares with: its episodes are cut after
the first answer, and a step has five times as many, so that it gives at least as many answers.
`:multi_turn` is PPO on the plain outcome of all attempts.

Expected effect: more episodes of five attempts succeed, since a policy that was trained on single
attempts repeats its wrong answer.

Hardware: 2 CPU cores

    agentrl-train --config=configs/arithmetic_ufo.py[:base|pair|multi_turn]
"""

from agentrl_jax.algorithms.experience.rewards import OutcomeReward
from agentrl_jax.algorithms.experience.schedules import Constant
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.methods import ppo, ufo
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    HARD_SUMS,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(HARD_SUMS)
    plain = ppo(CRITIC_HEAD, surrogate=PPO(0.2, 0.28), rewards=OutcomeReward(), **settings)
    algorithm, source = pick(
        variant,
        "arithmetic_ufo",
        method=(ufo(CRITIC_HEAD, group_fraction=0.75, **settings), rollouts(8)),
        base=(plain, rollouts(5 * 8, max_turns=Constant(1))),
        multi_turn=(plain, rollouts(8)),
    )
    return small_experiment(
        "arithmetic-ufo",
        HARD_SUMS,
        algorithm,
        source,
        label="UFO",
        players=("random", "repeater", "expert"),
    )
