"""Multi-attempt, dialogue, game and curriculum methods: SCoRe, MinD, EPO (both), ScalingInter-RL,
G-RA, MARS, BFS-Prover-V2.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import group_normalized, static_weights
from agentrl_jax.algorithms.advantages.token_masks import (
    OnlyAgents,
    OnlySources,
    QuantileBand,
    TurnNLLBand,
)
from agentrl_jax.algorithms.advantages.token_weights import token_mean, turn_mean
from agentrl_jax.algorithms.advantages.trajectory_checks import is_illegal, is_malformed
from agentrl_jax.algorithms.advantages.turn import MARS, RewardToGo, ScaleByMax, TurnGroupedBy
from agentrl_jax.algorithms.experience.penalties import TurnPenalty
from agentrl_jax.algorithms.experience.rewards import (
    ProgressBonus,
    RewardChain,
    RewardGate,
    ScheduledReward,
    SingleTurnReward,
)
from agentrl_jax.algorithms.experience.schedules import EPOPhaseWeight, PiecewiseConstant
from agentrl_jax.algorithms.experience.turn_rewards import CompactnessPenalty, CriticalTurnReward
from agentrl_jax.algorithms.losses.entropy_band import EntropyBand
from agentrl_jax.algorithms.losses.policy import REINFORCE
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL, AttemptKL
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.learner.optimizer import AdamWConfig


def self_correcting(
    first_stage: int,
    alpha: float = 10.0,
    beta1: float = 0.01,
    beta2: float = 0.1,
    gamma: float = 0.0,
    **settings: Any,
) -> PolicyGradientConfig:
    """SCoRe (arXiv 2409.12917): two attempts, REINFORCE with KL, in two stages.

    For `first_stage` steps only the second attempt's reward counts, and beta2 in addition to the
    usual beta1 keeps the first attempt close to the base model; then both rewards count, with alpha
    (r2 - r1) on the second. Values: mathematics alpha 10, beta1 .01, beta2 .1, learning rate 5e-6,
    batch 512; code beta2 .25, learning rate 1e-5. How many of the 3,000 and 1,500 steps the first
    stage takes is not stated, hence no default. An attempt's return is its own reward (`gamma` 0);
    with gamma 1 the first attempt is credited for the second too. alpha 0 and no first stage are
    REINFORCE over two turns. First attempts of the base model (`SelfCorrectionRollouts`) are not
    trained.
    """
    progress = ProgressBonus(alpha)
    stages = (
        PiecewiseConstant((SingleTurnReward(1), progress), (0, first_stage))
        if first_stage
        else PiecewiseConstant((progress,), (0,))
    )
    kl_coefficients = (
        PiecewiseConstant(((beta1 + beta2, beta1), (beta1,)), (0, first_stage))
        if first_stage
        else PiecewiseConstant(((beta1,),), (0,))
    )
    return replace(
        PolicyGradientConfig(
            advantage=TurnGroupedBy(RewardToGo(gamma), key=None),
            aggregation=turn_mean,
            surrogate=REINFORCE(),
            rewards=ScheduledReward(stages),
            regularizers={"kl": AttemptKL(kl_coefficients)},
            optimizer=AdamWConfig(5e-6),
            mask=OnlySources(),
        ),
        **settings,
    )


def mind(
    compactness: float, markers: Sequence[str], format_penalty: float, **settings: Any
) -> PolicyGradientConfig:
    """MinD (arXiv 2505.19788): GRPO on format, accuracy and compactness (a turn with several
    thinking units is penalized).

    The weights, and the test for several units, are not published: none has a default here. Its
    units are calls of the context manager `contexts.policy_notes.StepwiseThinking`.
    """
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(),
            rewards=RewardChain(
                (
                    TurnPenalty("format", format_penalty, is_malformed),
                    CompactnessPenalty(compactness, markers),
                )
            ),
        ),
        **settings,
    )


def epo_strategic(
    agent: str = "strategist", scale: float = 0.1, **settings: Any
) -> PolicyGradientConfig:
    """EPO for strategic reasoning (arXiv 2502.12486): REINFORCE on judged turns of a strategist,
    returns scaled so that the largest of a dialogue is 1.

    gamma .99; mean over turns of their token means; no ratio, clip nor KL (released code).
    `scale`: SOTOPIA's goal score has 10 points. Learning rate and epochs are those of a full
    fine-tuning (cosine, warm-up 3 %, 3 epochs). A strategist that advises a frozen agent is the
    strategy `StrategistRollouts`.
    """
    return replace(
        PolicyGradientConfig(
            advantage=TurnGroupedBy(ScaleByMax(0.99), key=None),
            aggregation=turn_mean,
            surrogate=REINFORCE(),
            rewards=CriticalTurnReward(scale),
            mask=OnlyAgents((agent,)),
        ),
        **settings,
    )


def epo(
    band: EntropyBand | None = None, penalty: float = 0.1, **settings: Any
) -> PolicyGradientConfig:
    """EPO (arXiv 2509.22576): an entropy bonus with a band around earlier rollouts' entropy, over
    GRPO (or PPO, by `advantage`, `critic`).

    Released: coefficient .001, band weight 1, KL .01, penalty .1 for an illegal action; code
    defaults low .8, high 1.2, height .1, scripts low 0, high 2, height .05 (SciWorld) or .1
    (ALFWorld); the band applies in the second half of an episode (`second_half_of` its most turns;
    everywhere by default), weighted by the phase of 150 epochs. As released the band's penalty has
    no gradient; by default it has one here (`EntropyBand(constant_penalty=True)` is the released
    one). With `smoothing` 0 it is the base with an entropy bonus.
    """
    entropy_band = band or EntropyBand(phase_weight=EPOPhaseWeight())
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(),
            regularizers={"entropy": entropy_band, "kl": KL(0.01)},
            rewards=TurnPenalty("illegal", penalty, is_illegal) if penalty else None,
            rescore=True,
            optimizer=AdamWConfig(3e-6),
        ),
        **settings,
    )


def scaling_inter(**settings: Any) -> PolicyGradientConfig:
    """ScalingInter-RL (AgentGym-RL, arXiv 2509.08755): GRPO with KL .001, clip .2, two epochs,
    learning rate 1e-6; the source has its curriculum.

    `Rollouts(max_turns=IntervalSchedule((8, 12, 15), 80))` for WebArena; (10, 20, 30) every 100
    steps for TextCraft and SciWorld, (6, 13, 20) for BabyAI, (5, 8, 10) for SearchQA; the fixed
    horizons it is compared with are 15, 30, 20, 20 and 5.
    """
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(),
            regularizers={"kl": KL(1e-3)},
            epochs=2,
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def gated_reward_accumulation(
    order: Sequence[str], thresholds: Sequence[float], **settings: Any
) -> PolicyGradientConfig:
    """G-RA (arXiv 2508.10548): a part of the reward counts only where the parts of higher priority
    pass their gates; on GRPO, or any base by keywords.

    The paper's thresholds are not known; at -inf nothing is gated (its baseline D-RA).
    """
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(),
            rewards=RewardGate(order, thresholds),
        ),
        **settings,
    )


def mars(**settings: Any) -> PolicyGradientConfig:
    """MARS (MARSHAL, arXiv 2510.15414): turn rewards centered by player, returns-to-go, distinct
    values centered, whitened; self-play.

    Released: clip .2 with a dual clip (whose bound is not stated; 3 is PPO's usual one), KL .2,
    penalty .05 for a malformed turn, learning rate 1e-6. One policy for all players of a game is
    the rollout strategy `SelfPlay`.
    """
    return replace(
        PolicyGradientConfig(
            advantage=MARS(),
            aggregation=token_mean,
            surrogate=PPO(dual_clip=3.0),
            rewards=TurnPenalty("format", 0.05, is_malformed),
            regularizers={"kl": KL(0.2)},
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def bfs_prover(low: float, high: float, **settings: Any) -> PolicyGradientConfig:
    """BFS-Prover-V2 (arXiv 2509.06493): likelihood of the steps of a proof whose negative
    log-likelihood lies between two quantiles.

    Every step has the weight `info["weight"]` (1 on the path that solved the task). The quantiles
    are not published, hence no defaults; 0 and 1 keep all. The search, its planner and the rounds
    of expert iteration are not part of the update.
    """
    return replace(
        PolicyGradientConfig(
            advantage=static_weights,
            aggregation=token_mean,
            surrogate=REINFORCE(),
            mask=TurnNLLBand(QuantileBand(low, high)),
        ),
        **settings,
    )
