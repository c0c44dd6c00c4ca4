"""DART (arXiv 2509.23866) behind a door, with samples of older weights: every step a sample, truncated importance weights, curated
groups.

Released: w = min(exp(old - rollout), 1), GSPO or PPO with clip .1 and .28, dual clip 10, KL .1, groups cropped to 8 with a success
and a failure, the newest stored success in an all-failed group, two versions of the weights, steps of the 80 % highest entropy (in
the code commented out). Its four modules are all here (docs/asynchrony.md): worlds, rollouts, the index of what was played
and the trainer, none waiting for another, with samples at most 2 versions old. On several devices `--config.engine.engines=2`
makes a pool whose weights are swapped one by one. The number of rollouts that follows success is no part of this config.

Expected effect: learning from stale samples is steadier than without the weights (`:base`).

agentrl-train --config=configs/keydoor_dart.py[:base]
"""

from agentrl_jax.algorithms.methods.gui import dart
from agentrl_jax.configs.small import KEY_DOOR, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment
from agentrl_jax.streaming import Streaming


def get_config(variant: str = "method") -> Experiment:
    settings = rates(KEY_DOOR)
    algorithm = pick(variant, "keydoor_dart", method=dart(**settings), base=dart(trust=float("inf"), **settings))
    streaming = Streaming(rollouts(worlds=16), staleness=2)
    return small("keydoor-dart", KEY_DOOR, algorithm, streaming, steps=40, label="DART", record_groups=16)
