"""REFUEL (arXiv 2410.04612), REBEL (2404.16767), and multi-turn DPO on the same pairs."""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.losses.pairwise import DPOLoss, RegressionLoss
from agentrl_jax.algorithms.pairwise.algorithm import PairwiseConfig
from agentrl_jax.learner.optimizer import AdamWConfig


def refuel(eta: float, **settings: Any) -> PairwiseConfig:
    """(d - eta (r - r'))^2 on pairs of dialogues that branch at any turn, one pass over each pair.

    Setting one (a language model as the user): eta 1e3 for rewards whose differences are about
    1e-2, learning rate 3e-7 with 10 % warm-up and a cosine to 0, 128 pairs per step, 500 steps for
    each of two iterations, temperature .8, `PairedRollouts(max_horizon=5)`. The learning rate is
    for models of billions of weights.
    """
    return replace(
        PairwiseConfig(
            RegressionLoss(eta),
            optimizer=AdamWConfig(3e-7, warmup_steps=50, final_fraction=0.0, weight_decay=1e-6),
        ),
        **settings,
    )


def refuel_online(
    kl: float = 0.05, unfinished_reward: float = -10.0, **settings: Any
) -> PairwiseConfig:
    """Setting two (the user's turns are fixed by the data): four passes over each batch of 32
    pairs, eta 1, only the last 4 layers are trained.

    Anthropic HH: KL .05 in the reward and -10 for an unfinished reply; UltraInteract: 0 and -4.
    Learning rate 3e-7, linear to 0 in the released scripts, a cosine here; temperature 1.
    """
    return replace(
        PairwiseConfig(
            RegressionLoss(1.0),
            kl=kl,
            unfinished_reward=unfinished_reward,
            epochs=4,
            top_layers=4,
            optimizer=AdamWConfig(3e-7, final_fraction=0.0, weight_decay=1e-6),
        ),
        **settings,
    )


def rebel(eta: float, **settings: Any) -> PairwiseConfig:
    """REFUEL's loss where a dialogue is one turn: two independent answers
    (`IndependentEpisodes(2)`), or `PairedRollouts(branch_turn=last_turn)`.
    """
    return refuel(eta, **settings)


def dpo(beta: float, fixed_reference: bool = True, **settings: Any) -> PairwiseConfig:
    """DPO (arXiv 2305.18290) on the same pairs: only the order of the two rewards counts, and the
    log-ratio is to the starting policy.

    Without `fixed_reference` the log-ratio is to the policy before each step, as in REFUEL: the
    same data with another loss.
    """
    return replace(
        PairwiseConfig(
            DPOLoss(beta),
            fixed_reference=fixed_reference,
            optimizer=AdamWConfig(3e-7, weight_decay=1e-6),
        ),
        **settings,
    )
