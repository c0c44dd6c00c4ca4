"""A policy loss and an advantage of your own: python examples/own_loss.py [STEPS]

A method is a `PolicyGradientConfig` whose slots hold values, so a new loss is a class that is
passed, and a new advantage a function. This one bounds the log-ratio smoothly where PPO clips the
ratio,

    loss = -A c tanh((logp - proximal_logp) / c)

with the gradient of REINFORCE at the start and none far from it. The program trains with it on the
environment of own_environment.py, over a leave-one-out advantage and with the k3 estimate of KL.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import own_environment

from agentrl_jax import AdamWConfig, train
from agentrl_jax.algorithms.advantages.token_weights import token_mean
from agentrl_jax.algorithms.losses.policy import SurrogateLoss
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig


@dataclass
class TanhSurrogate(SurrogateLoss):
    """-A c tanh(log r / c) for each token; elementwise, so any shape will do."""

    scale: float = 0.5

    def __call__(self, logp, proximal_logp, advantage, mask, sequence_ids):
        return -advantage * self.scale * jnp.tanh((logp - proximal_logp) / self.scale)


def leave_one_out(inputs):
    """A_i = R_i - the mean return of the group's other members, for every token of trajectory i."""
    returns, group = inputs.trajectory_return, inputs.trajectory_group
    count = np.bincount(group)[group]
    others = (np.bincount(group, returns)[group] - returns) / np.maximum(count - 1, 1)
    return (returns - others)[inputs.token_trajectory]


def tanh_policy_gradient(**settings) -> PolicyGradientConfig:
    """The method: its slots, and whatever else is given."""
    return PolicyGradientConfig(
        advantage=leave_one_out,
        aggregation=token_mean,
        surrogate=TanhSurrogate(),
        regularizers={"kl": KL(0.01)},
        **settings,
    )


if __name__ == "__main__":
    experiment = own_environment.make_experiment(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
    experiment.name, experiment.phases["rl"].label = "own-loss", "tanh"
    experiment.phases["rl"].algorithm = tanh_policy_gradient(
        optimizer=AdamWConfig(5e-3), bin_length=64, microbatch=64, epochs=2, rescore=True
    )
    train(experiment, Path("runs/example-own-loss"), fresh=True)
