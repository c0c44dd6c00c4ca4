"""GUI and navigation agents: DART, ARPO, ActiveVLN, UI-S1."""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import WeightedSum, group_normalized
from agentrl_jax.algorithms.advantages.grouping import group_of_turn, step_of_turn, turn_of_token
from agentrl_jax.algorithms.advantages.token_masks import OnlySources, TopEntropyTurns
from agentrl_jax.algorithms.advantages.token_weights import step_mean, token_mean
from agentrl_jax.algorithms.advantages.trajectory_checks import is_malformed
from agentrl_jax.algorithms.advantages.turn import (
    RewardToGo,
    TurnGroupedBy,
    episode_return,
    stop_at_mismatch,
    stop_before_mismatch,
    turn_reward,
)
from agentrl_jax.algorithms.experience.filters import (
    AccuracyBand,
    BalancedSubsample,
    FilterChain,
    MinScoreStd,
    VersionWindow,
)
from agentrl_jax.algorithms.experience.penalties import EpisodePenalty
from agentrl_jax.algorithms.experience.replay import NewestSuccessReplay, SuccessReplay
from agentrl_jax.algorithms.experience.rewards import DistanceReward
from agentrl_jax.algorithms.experience.turn_rewards import (
    expert_match_reward,
    expert_match_reward_released,
)
from agentrl_jax.algorithms.losses.gspo import GSPO
from agentrl_jax.algorithms.losses.importance import TruncatedIS
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.learner.optimizer import AdamWConfig


def dart(
    max_importance_weight: float = 1.0,
    entropy_fraction: float = 0.8,
    sequence_ratio: bool = True,
    seed: int = 0,
    **settings: Any,
) -> PolicyGradientConfig:
    """DART (arXiv 2509.23866): every step is a sample; truncated importance sampling, curated
    groups, training on high-entropy steps.

    Released values: w = min(exp(old - rollout), 1), clip .1 and .28, KL .1, learning rate 1e-7,
    weight decay .1, gradient clip 2, groups reduced to 8 with a success and a failure, the newest
    stored success in an all-failed group, the two newest versions of the weights. Its script uses
    the sequence's ratio (GSPO) with these widths, else PPO with dual clip 10. Training the 80 % of
    steps with the highest entropy is the paper's; in the released code it is commented out
    (`entropy_fraction` 1). The number of rollouts by success rate (the strategy `AdaptiveBudget`),
    the context (`LastImages(5, inner=LastMessages(35, opening=True))`) and the four modules are not
    part of the update.
    """
    return replace(
        PolicyGradientConfig(
            advantage=TurnGroupedBy(episode_return, group_of_turn, std=True, keep_singletons=True),
            aggregation=step_mean,
            surrogate=GSPO(0.1, 0.28) if sequence_ratio else PPO(0.1, 0.28, 10.0),
            sequence=turn_of_token,
            pre_filter=VersionWindow(2),
            replay=NewestSuccessReplay(),
            filter=FilterChain(
                (AccuracyBand(0.0, 1.0, include_high=False), BalancedSubsample(8, seed))
            ),
            mask=TopEntropyTurns(entropy_fraction) if entropy_fraction < 1 else None,
            mismatch=TruncatedIS(high=max_importance_weight),
            rescore=True,
            regularizers={"kl": KL(0.1)},
            optimizer=AdamWConfig(1e-7, weight_decay=0.1, clip_norm=2.0),
        ),
        **settings,
    )


def arpo_gui(
    replay: bool = True, format_penalty: float = 0.5, **settings: Any
) -> PolicyGradientConfig:
    """ARPO for GUI agents (arXiv 2505.16282): GRPO; a stored success replaces a member of an
    all-failed group.

    Released values: clip .2 and .3, dual clip 3, no KL, learning rate 1e-6, 8 successes per task;
    ratios start at 1 since the batch is rescored. An episode with a malformed action loses .5.
    Tasks must recur: `Rollouts(task_source=TaskSet(...))`. Without replay it is GRPO.
    """
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(0.2, 0.3, 3.0),
            rescore=True,
            replay=SuccessReplay() if replay else None,
            optimizer=AdamWConfig(1e-6),
            rewards=EpisodePenalty("format", format_penalty, is_malformed)
            if format_penalty
            else None,
        ),
        **settings,
    )


def active_vln(**settings: Any) -> PolicyGradientConfig:
    """ActiveVLN (arXiv 2509.12618): GRPO on 15 (1 - d / 3 m) for stopping within 3 m of the goal;
    clip .2, no KL, learning rate 1e-6.

    The early stop after twice the expert's steps and the resampling of all-failed groups are the
    strategies `EarlyStopping` and `ResampleGroup`. The aggregation is not stated: token mean, the
    default of the code that it builds on.
    """
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(),
            rewards=DistanceReward(),
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def ui_s1(
    as_released: bool = False, gamma: float = 0.5, min_return_std: float = 0.3, **settings: Any
) -> PolicyGradientConfig:
    """UI-S1 (arXiv 2509.11543): agreement with an expert's steps, as the sum of an episode's and a
    step's advantage.

    Paper: r = .1 format + .4 type + .5 exact; returns (gamma .5) run through matched steps up to
    the first mismatch, whose reward counts; the episode's advantage is of whole returns.
    `as_released`: other constants, a return ends before the mismatch, and instead of the episode's
    return each step's own reward, normalized over the task's steps. Groups with a standard
    deviation below .3 are dropped (the paper: of advantages; here, as released, of returns). KL
    1e-4, learning rate 1e-6. Following the expert's path is the strategy `SemiOnlineRollouts`,
    whose patches are not trained.
    """
    stop = stop_before_mismatch if as_released else stop_at_mismatch
    steps = TurnGroupedBy(RewardToGo(gamma, stop), step_of_turn, std=True)
    episode = (
        TurnGroupedBy(turn_reward, group_of_turn, std=True, keep_singletons=True)
        if as_released
        else group_normalized
    )
    return replace(
        PolicyGradientConfig(
            advantage=WeightedSum(episode, steps),
            aggregation=token_mean,
            surrogate=PPO(),
            rewards=expert_match_reward_released if as_released else expert_match_reward,
            filter=MinScoreStd(min_return_std, ddof=0, keep_singletons=True),
            regularizers={"kl": KL(1e-4)},
            optimizer=AdamWConfig(1e-6),
            mask=OnlySources(),
        ),
        **settings,
    )
