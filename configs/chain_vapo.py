"""VAPO (arXiv 2504.05118) on a chain: a critic that learns before the policy is updated.

UI-TARS-2 (arXiv 2509.02544) builds on it. Paper: about 50 steps of the critic alone, lambda of the
policy 1 - 1 / (alpha l) with alpha .05, lambda of the critic 1, clip .2 and .28, weight .1 on the
likelihood of successful rollouts. A chain's episodes have 16 to 26 policy-written tokens, so alpha
is .25 here (lambda .75 to .85), and the warm-up 10 steps. UI-TARS-2 does not state its alpha: .5
here. The critic starts from random values, as one from a reward model starts from wrong ones.

Expected effect: more success than without warm-up (`:base`) over as many updates of the policy, of
which the first follow a critic that has learnt. A critic that starts at zero has nothing to
unlearn, and with a lambda near 1 its values hardly matter.

`:flywheel` is UI-TARS-2 with a turn of its data flywheel every 10 steps (its numbers are not
published): failed rollouts are used for continued pre-training as text, successful ones are
imitated. It and `:ui_tars_2`, the same without the flywheel, have a critic that starts at zero: the
flywheel's first cycle raises the success of rollouts from .11 to .54 (`ui_tars_flywheel` in
docs/methods.md, over 5 seeds).

Two mistakes are allowed, five in the comparison, whose learning rate is 3e-4 (docs/methods.md).

Hardware: 2 CPU cores; time: about 50 s of processor time for both sides, `:flywheel` 60 s; score:
success 1.00, SFT .44 over 10 seeds of the comparison (docs/methods.md)

    agentrl-train --config=configs/chain_vapo.py[:base|pair|ui_tars_2|flywheel]
"""

from agentrl_jax.algorithms.methods import ui_tars_2, vapo
from agentrl_jax.algorithms.methods.ui_tars2 import FlywheelConfig, maximum_likelihood
from agentrl_jax.configs.small import (
    CRITIC_HEAD,
    SHORT_CHAIN,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.training.config import Experiment

RANDOM_HEAD = HeadConfig(layers=1, scale=3.0)


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings, warmup = training_settings(SHORT_CHAIN), 10
    tars, gently = (
        ui_tars_2(CRITIC_HEAD, 0.5, warmup, **settings),
        maximum_likelihood(**{**settings, "optimizer": AdamWConfig(3e-4)}),
    )
    algorithm, steps = pick(
        variant,
        "chain_vapo",
        method=(vapo(RANDOM_HEAD, 0.25, warmup, **settings), 16 + warmup),
        base=(vapo(RANDOM_HEAD, 0.25, 0, **settings), 16),
        ui_tars_2=(tars, 25 + warmup),
        flywheel=(FlywheelConfig(tars, 10, (2, 4), gently, gently), 25 + warmup),
    )
    return small_experiment(
        "chain-vapo", SHORT_CHAIN, algorithm, rollouts(4), steps=steps, label="VAPO"
    )
