"""VAPO (arXiv 2504.05118), which UI-TARS-2 (arXiv 2509.02544) builds on, on a chain: a critic that learns before the policy moves.

Paper: about 50 steps of the critic alone, lambda of the policy 1 - 1 / (alpha l) with alpha .05, lambda of the critic 1, clip .2
and .28, likelihood of what went well .1. A chain's episodes write about 40 tokens, so alpha is .5 here (lambda .95), and the
warm-up 10 steps. UI-TARS-2 does not state its alpha.

Expected effect: better than the same without warm-up (`:base`) over as many updates of the policy, where the critic starts from random
values (`--config.rl.algorithm.critic.head.scale=1`). One that starts at zero has nothing to unlearn: there both were alike.

`:flywheel` is UI-TARS-2 whose wheel turns every 10 steps (its numbers are not published): what failed is read on as text, what passed
is imitated.

agentrl-train --config=configs/chain_vapo.py[:base|ui_tars_2|flywheel]
"""

from agentrl_jax.algorithms.methods.critics import ui_tars_2, vapo
from agentrl_jax.algorithms.methods.flywheel import FlywheelConfig, likelihood
from agentrl_jax.configs.small import CHAIN, HEAD, pick, rates, small
from agentrl_jax.experiment import Experiment
from agentrl_jax.optimizer import AdamWConfig


def get_config(variant: str = "method") -> Experiment:
    settings, warmup = rates(CHAIN), 10
    tars, gently = ui_tars_2(HEAD, 0.5, warmup, **settings), likelihood(**{**settings, "optimizer": AdamWConfig(3e-4)})
    algorithm, steps = pick(
        variant, "chain_vapo",
        method=(vapo(HEAD, 0.5, warmup, **settings), 25 + warmup), base=(vapo(HEAD, 0.5, 0, **settings), 25),
        ui_tars_2=(tars, 25 + warmup), flywheel=(FlywheelConfig(tars, 10, (2, 4), gently, gently), 25 + warmup),
    )  # fmt: skip
    return small("chain-vapo", CHAIN, algorithm, steps=steps, label="VAPO")
