"""UFO (arXiv 2507.14295) on sums with five attempts.

The only observation after a wrong attempt is "Incorrect. Please think again.". Paper and released
code agree: success at attempt k has reward 2^-k, repeated answers cost up to .5, a malformed turn
.1; PPO with gamma = lambda = 1, clip .2 and .28, entropy and KL .001, the quarter of groups whose
rewards vary most. Smaller here: model, learning rates, batches, and three quarters of the groups,
since a batch has 16 and not many more. The cloned policy, of a short fine-tuning, is wrong in
most of its first attempts.

Expected effect: within five attempts more is solved than after single-turn RL (`:base`, PPO on the
outcome of the first attempt), which repeats its wrong answers.

Hardware: 2 CPU cores; time: about 60 s of processor time for both sides; score: success .77 within
five attempts, single-turn RL .71, SFT .73 over 10 seeds (docs/methods.md)

    agentrl-train --config=configs/arithmetic_ufo.py[:base|pair]
"""

from agentrl_jax.algorithms.experience.rewards import OutcomeReward
from agentrl_jax.algorithms.experience.schedules import PiecewiseConstant
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.methods import ppo, ufo
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    FIVE_ATTEMPTS,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(FIVE_ATTEMPTS)
    algorithm, source = pick(
        variant,
        "arithmetic_ufo",
        method=(ufo(CRITIC_HEAD, group_fraction=0.75, **settings), rollouts()),
        base=(
            ppo(CRITIC_HEAD, surrogate=PPO(0.2, 0.28), rewards=OutcomeReward(), **settings),
            rollouts(max_turns=PiecewiseConstant((1,), (0,))),
        ),
    )
    return small_experiment(
        "arithmetic-ufo",
        FIVE_ATTEMPTS,
        algorithm,
        source,
        label="UFO",
        players=("random", "repeater", "expert"),
    )
