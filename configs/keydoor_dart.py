"""DART (arXiv 2509.23866) behind a door, with samples of older weights: every step a sample, truncated importance weights, curated
groups.

Released: w = min(exp(old - rollout), 1), GSPO or PPO with clip .1 and .28, dual clip 10, KL .1, groups cropped to 8 with a success
and a failure, the newest stored success in an all-failed group, two versions of the weights, steps of the 80 % highest entropy (in
the code commented out). Here the engine gets new weights every 4th step. Four asynchronous modules and the number of rollouts that
follows success are no part of this config.

Expected effect: learning from stale samples is steadier than without the weights (`:base`).

agentrl-train --config=configs/keydoor_dart.py[:base]
"""

from agentrl_jax.algorithms.methods.gui import dart
from agentrl_jax.configs.small import KEY_DOOR, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(KEY_DOOR)
    algorithm = pick(variant, "keydoor_dart", method=dart(**settings), base=dart(trust=float("inf"), **settings))
    config = small("keydoor-dart", KEY_DOOR, algorithm, rollouts(worlds=16), steps=40, label="DART")
    assert config.rl
    config.rl.publish_every = 4
    return config
