"""Tool-use and long-context agents: SimpleTIR, ARPO, AEPO, SPEAR, IGPO, SUPO, WebAgent-R1,
INSPO.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import AdvantageEstimator, GroupedBy, group_normalized
from agentrl_jax.algorithms.advantages.token_masks import (
    AllOf,
    mask_overlong_trajectories,
    mask_void_trajectories,
)
from agentrl_jax.algorithms.advantages.token_weights import SequenceSum, token_mean, turn_mean
from agentrl_jax.algorithms.advantages.trajectory_checks import (
    TrajectoryPredicate,
    has_void_turn,
    is_malformed,
    is_overlong,
)
from agentrl_jax.algorithms.advantages.transforms import PrefixMean, ScaleByEntropy
from agentrl_jax.algorithms.advantages.turn import IGPO
from agentrl_jax.algorithms.experience.filters import (
    AccuracyBand,
    DropFaultyTrajectories,
    FilterChain,
    MinScoreStd,
    MinValidTrajectories,
    TopScoreStd,
)
from agentrl_jax.algorithms.experience.penalties import ReplaceRewards
from agentrl_jax.algorithms.experience.rewards import RewardChain
from agentrl_jax.algorithms.experience.schedules import Cosine
from agentrl_jax.algorithms.experience.self_imitation import PositiveReplay
from agentrl_jax.algorithms.experience.turn_rewards import (
    InformationGain,
    ToolUseReward,
    ToolVarietyReward,
)
from agentrl_jax.algorithms.losses.covariance import ClipCov, ClipCovAdvantages
from agentrl_jax.algorithms.losses.ppo import PPO, GradientPreservingPPO
from agentrl_jax.algorithms.losses.regularizers import KL, EntropyBonus
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.auxiliary import SelfImitation
from agentrl_jax.learner.optimizer import AdamWConfig


def simpletir(drop_void_turns: bool = True, **settings: Any) -> PolicyGradientConfig:
    """SimpleTIR (arXiv 2509.02479): trajectories with a void turn are not trained on; they still
    count in their group's statistics.

    Paper and code: clip .2 and .28, dual clip 3, no KL nor entropy, learning rate 1e-6; groups with
    std below 1e-3, accuracy outside [.1, .9] or fewer than 4 members that are not overlong are
    dropped, overlong trajectories masked. Episodes have 5 turns, then 10 once lengths stop growing:
    `Rollouts(max_turns=RaiseOnPlateau((5, 10), patience))`, whose patience is not published.
    """
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(0.2, 0.28, 3.0),
            mask=AllOf((mask_void_trajectories, mask_overlong_trajectories))
            if drop_void_turns
            else mask_overlong_trajectories,
            filter=FilterChain(
                (MinScoreStd(1e-3), AccuracyBand(0.1, 0.9), MinValidTrajectories(4, (is_overlong,)))
            ),
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def arpo(
    tools: Sequence[str] = (), hard_attribution: bool = False, **settings: Any
) -> PolicyGradientConfig:
    """ARPO (arXiv 2507.19849): GRPO over branches; the reward is -1 for a malformed answer, else
    the outcome, and .1 for using all `tools`.

    Soft attribution (default): each branch has its own advantage. `hard_attribution`: on tokens
    that branches share, the branches' mean. KL 0, learning rate 1e-6, two epochs. Branching after
    uncertain tool calls is the strategy `BranchingRollouts`; without branches both are GRPO.
    """
    bonus = (ToolVarietyReward(tools),) if tools else ()
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(),
            epochs=2,
            optimizer=AdamWConfig(1e-6),
            rewards=RewardChain((*bonus, ReplaceRewards("format", -1.0, is_malformed))),
            transforms=(PrefixMean(),) if hard_attribution else (),
        ),
        **settings,
    )


def aepo(
    tools: Sequence[str] = (),
    entropy_scale: float = 0.2,
    keep_gradient: bool = True,
    **settings: Any,
) -> PolicyGradientConfig:
    """AEPO (arXiv 2510.14545): ARPO with advantages scaled by (1 + .2 z(H)) and an upper clip that
    keeps its gradient; dual clip 3.

    The balance of first rollouts and branches belongs to the strategy `BranchingRollouts`.
    entropy_scale 0 without keep_gradient: PPO's loss with dual clip.
    """
    return replace(
        arpo(
            tools,
            surrogate=GradientPreservingPPO(dual_clip=3.0) if keep_gradient else PPO(dual_clip=3.0),
            rescore=True,
            transforms=(ScaleByEntropy(entropy_scale),) if entropy_scale else (),
        ),
        **settings,
    )


def spear(
    max_tokens: float,
    repetition_checks: Sequence[TrajectoryPredicate] = (),
    anneal_steps: int = 100,
    reward_tool_use: bool = True,
    tool_reward_steps: int = 200,
    replay_size: int = 2048,
    advantage: AdvantageEstimator | None = None,
    **settings: Any,
) -> PolicyGradientConfig:
    """SPEAR (arXiv 2509.22601): self-imitation that grows while a reward for tool use decays, on a
    base without std (Dr.BoT).

    Code: replay of trajectories better than their group's mean, compared again to the median of the
    last 10,240 group means, coefficient (1 - cos(pi t / T)) / 2 with T = 100 (ALFWorld), 200
    (WebShop) or 300 (mathematics), Clip-Cov on it (fraction .02, between 1-2 and 40-60: here 1 and
    40); .1 per tool turn, at most 1, times (1 + cos(pi t / `tool_reward_steps`)) / 2; clip .2 and
    .28, dual clip 10, sums over tokens / `max_tokens`, the top three quarters of groups by std,
    without void, overlong and unreadable rollouts (`repetition_checks`: not given in the paper).
    Without `reward_tool_use` trajectories without tools are replayed too. `advantage`: `gigpo`'s
    for its other base.
    """
    replay = SelfImitation(
        Cosine(0.0, 1.0, anneal_steps),
        PositiveReplay(size=replay_size, require_tool_call=reward_tool_use),
        (ClipCovAdvantages(ClipCov(0.02, 1.0, 40.0)),),
        SequenceSum(max_tokens),
    )
    return replace(
        PolicyGradientConfig(
            advantage=advantage or GroupedBy(std=False),
            aggregation=SequenceSum(max_tokens),
            surrogate=PPO(0.2, 0.28, 10.0),
            rescore=True,
            rewards=ToolUseReward(Cosine(1.0, 0.0, tool_reward_steps)) if reward_tool_use else None,
            auxiliaries=(replay,),
            filter=FilterChain(
                (
                    DropFaultyTrajectories((has_void_turn, is_overlong, *repetition_checks)),
                    TopScoreStd(0.75),
                )
            ),
        ),
        **settings,
    )


def igpo(
    gamma: float = 1.0, joint_normalization: bool = True, log_gain: bool = False, **settings: Any
) -> PolicyGradientConfig:
    """IGPO (arXiv 2510.14967): a turn's reward is the gain in probability of the correct answer;
    returns-to-go of normalized turn rewards.

    Paper: z over all turns of a group (`joint_normalization`) or over information gain and outcome
    separately; malformed answers -2; clip .2, KL and entropy .001, learning rate 1e-6. gamma is not
    stated (a reimplementation has .95). Normalized jointly, turns without gain count against longer
    episodes, and a policy may come to answer at once (docs/methods.md, `igpo_success`). The
    probabilities come from a probe before the update (`answer_probe.AnswerProbe`). The first
    released code centers by column (`ColumnCentered`), for comparison only.
    """
    return replace(
        PolicyGradientConfig(
            advantage=IGPO(gamma, joint_normalization),
            aggregation=token_mean,
            surrogate=PPO(),
            optimizer=AdamWConfig(1e-6),
            rewards=RewardChain(
                (ReplaceRewards("format", -2.0, is_malformed), InformationGain(log_gain))
            ),
            regularizers={"kl": KL(1e-3), "entropy": EntropyBonus(1e-3)},
        ),
        **settings,
    )


def supo(**settings: Any) -> PolicyGradientConfig:
    """SUPO (arXiv 2510.06727): one return per rollout, however many contexts it was split into;
    overlong rollouts count and are masked.

    Clip .2 and .28, token mean, no KL nor entropy, learning rate 1e-6. Statistics of this library
    never depend on training sequences, so only the context manager (`contexts.policy_notes`)
    summarizes.
    """
    return replace(
        PolicyGradientConfig(
            advantage=group_normalized,
            aggregation=token_mean,
            surrogate=PPO(0.2, 0.28),
            mask=mask_overlong_trajectories,
            optimizer=AdamWConfig(1e-6),
        ),
        **settings,
    )


def webagent_r1(**settings: Any) -> PolicyGradientConfig:
    """WebAgent-R1 (arXiv 2505.16421), M-GRPO: three nested means over rollouts, actions and tokens;
    std + 1e-4, KL .001, learning rate 1e-6.

    Its released gradient clip is .01. Each action is scored in the context that it was sampled in
    (the released training sequence has placeholders for all observations but the last); a context
    manager decides which observations remain.
    """
    return replace(
        PolicyGradientConfig(
            advantage=GroupedBy(eps=1e-4),
            aggregation=turn_mean,
            surrogate=PPO(),
            regularizers={"kl": KL(1e-3)},
            optimizer=AdamWConfig(1e-6, clip_norm=0.01),
        ),
        **settings,
    )


def inspo(**settings: Any) -> PolicyGradientConfig:
    """INSPO (arXiv 2512.01945): GRPO within the group of a question and an instruction; the
    population of instructions is `contexts.evolved_instruction`'s.

    The update is GRPO's; with one instruction the method is GRPO.
    """
    return replace(
        PolicyGradientConfig(advantage=group_normalized, aggregation=token_mean, surrogate=PPO()),
        **settings,
    )
