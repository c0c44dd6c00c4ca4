"""Methods with a token critic: PPO over tokens, turns and both, VAPO, UI-TARS-2, VLA-RL, UFO, A
Practitioner's Guide.
"""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.gae import GAE, BiLevelGAE, LengthAdaptiveLambda, TurnGAE
from agentrl_jax.algorithms.advantages.group import KLPenaltyReward, leave_one_out
from agentrl_jax.algorithms.advantages.grouping import turn_of_token
from agentrl_jax.algorithms.advantages.token_weights import step_mean, token_mean
from agentrl_jax.algorithms.advantages.trajectory_checks import is_malformed
from agentrl_jax.algorithms.experience.filters import TopScoreStd
from agentrl_jax.algorithms.experience.penalties import RepeatedAnswerPenalty, TurnPenalty
from agentrl_jax.algorithms.experience.rewards import (
    AttemptDecay,
    RewardChain,
    dense_rewards,
    return_at_last_turn,
)
from agentrl_jax.algorithms.losses.ppo import PPO, StepPPO
from agentrl_jax.algorithms.losses.regularizers import KL, EntropyBonus, PositiveExampleLMLoss
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.critic import (
    CriticConfig,
    CriticHeadConfig,
    first_token_mean,
)
from agentrl_jax.learner.optimizer import AdamWConfig


def ppo(
    head: CriticHeadConfig, gamma: float = 1.0, lam: float = 1.0, **settings: Any
) -> PolicyGradientConfig:
    """PPO (arXiv 1707.06347) over tokens: whitened GAE that skips observation tokens; clip .2,
    value clip .2, token mean.
    """
    return replace(
        PolicyGradientConfig(
            advantage=GAE(gamma, lam),
            aggregation=token_mean,
            surrogate=PPO(),
            critic=CriticConfig(head),
        ),
        **settings,
    )


def turn_ppo(
    head: CriticHeadConfig, gamma: float = 0.99, lam: float = 0.95, **settings: Any
) -> PolicyGradientConfig:
    """PPO over turns: V at a turn's first token, one whitened advantage for all its tokens."""
    critic = CriticConfig(head, aggregation=first_token_mean)
    return replace(ppo(head, advantage=TurnGAE(gamma, lam, whiten=True), critic=critic), **settings)


def bi_level_ppo(
    head: CriticHeadConfig, turn_gamma: float = 0.95, **settings: Any
) -> PolicyGradientConfig:
    """RAGEN's bi-level GAE (arXiv 2504.20073): over turns, then over the tokens of each, with the
    trajectory's turn boundaries.
    """
    return replace(ppo(head, advantage=BiLevelGAE(turn_gamma=turn_gamma)), **settings)


def vapo(
    head: CriticHeadConfig, alpha: float = 0.05, warmup: int = 50, **settings: Any
) -> PolicyGradientConfig:
    """VAPO (arXiv 2504.05118): decoupled, length-adaptive GAE, value pretraining, clip .2 and .28,
    likelihood of successful trajectories (.1).

    The critic regresses on plain returns (lambda 1); the policy's lambda is 1 - 1 / (alpha l).
    `warmup`: about 50 steps of the critic alone.
    """
    return replace(
        ppo(
            head,
            advantage=GAE(lam=LengthAdaptiveLambda(alpha), critic_lam=1.0),
            surrogate=PPO(0.2, 0.28),
            critic=CriticConfig(head, warmup_steps=warmup),
            regularizers={"positive": PositiveExampleLMLoss(0.1)},
        ),
        **settings,
    )


def ui_tars_2(
    head: CriticHeadConfig, alpha: float = 0.05, warmup: int = 50, **settings: Any
) -> PolicyGradientConfig:
    """UI-TARS-2 (arXiv 2509.02544): PPO with decoupled, length-adaptive GAE, value pretraining and
    clip-higher.

    The report names these and does not give their numbers: alpha and warm-up are VAPO's (a public
    reuse has alpha 1.5), and so are the clips. Rewards for format and length, of unknown weight,
    are left to `rewards`. Its model merging is `models.averaging.interpolate`, its data flywheel
    `ui_tars2.FlywheelConfig`, its streaming rollouts `training.async_rollouts.AsyncRollouts`.
    """
    return replace(vapo(head, alpha, warmup, regularizers={}), **settings)


def vla_rl(head: CriticHeadConfig, warmup: int = 5, **settings: Any) -> PolicyGradientConfig:
    """VLA-RL (arXiv 2505.18719): an action of several tokens is one step: one ratio, one value, one
    advantage (not whitened).

    gamma .99, lambda .95, clip .2, value clip .2, one epoch, 5 updates of the critic alone
    (released code); learning rates 5e-6 for the policy and 5e-5 for the critic. There critic and
    policy share a trunk; here the critic has its own, initialized with the policy's weights. Its
    curriculum is `Rollouts(task_source=TaskSet(..., SuccessRateSampler(...)))`.
    """
    critic = CriticConfig(
        head, AdamWConfig(5e-5), clip=0.2, aggregation=first_token_mean, warmup_steps=warmup
    )
    return replace(
        PolicyGradientConfig(
            advantage=TurnGAE(0.99, 0.95),
            aggregation=step_mean,
            surrogate=StepPPO(),
            sequence=turn_of_token,
            critic=critic,
            optimizer=AdamWConfig(5e-6),
        ),
        **settings,
    )


def ufo(
    head: CriticHeadConfig,
    decay: float = 0.5,
    repetition: float = 0.5,
    group_fraction: float = 0.25,
    **settings: Any,
) -> PolicyGradientConfig:
    """UFO (arXiv 2507.14295): decay^k for success at attempt k, a penalty for repeated answers, PPO
    on the groups that vary most.

    Released code: penalty .1 for each malformed turn, GAE with gamma = lambda = 1, clip .2 and .28,
    entropy and KL .001, the top quarter of groups by the std of their rewards. decay 1, repetition
    0, group_fraction 1 is PPO with these clips on the plain outcome.
    """
    rewards = RewardChain(
        (
            AttemptDecay(decay),
            RepeatedAnswerPenalty(repetition),
            TurnPenalty("format", 0.1, is_malformed),
        )
    )
    return replace(
        ppo(
            head,
            rewards=rewards,
            filter=TopScoreStd(group_fraction),
            surrogate=PPO(0.2, 0.28),
            regularizers={"entropy": EntropyBonus(1e-3), "kl": KL(1e-3)},
        ),
        **settings,
    )


def practitioners_ppo(
    head: CriticHeadConfig, has_dense_rewards: bool = True, **settings: Any
) -> PolicyGradientConfig:
    """A Practitioner's Guide (arXiv 2510.01132), PPO: a reward for each turn, KL .01 in the reward,
    GAE with gamma 1, clip .2.

    Learning rates 1e-6 and, for the critic, 1e-5. Without `has_dense_rewards`: the whole return on
    the last turn.
    """
    return replace(
        ppo(
            head,
            rewards=dense_rewards if has_dense_rewards else return_at_last_turn,
            advantage=GAE(penalty=KLPenaltyReward(0.01)),
            critic=CriticConfig(head, AdamWConfig(1e-5)),
            optimizer=AdamWConfig(1e-6),
            reference=True,
            rescore=True,
        ),
        **settings,
    )


def practitioners_rloo(has_dense_rewards: bool = True, **settings: Any) -> PolicyGradientConfig:
    """A Practitioner's Guide (arXiv 2510.01132), RLOO: KL .001 in the loss."""
    return replace(
        PolicyGradientConfig(
            leave_one_out,
            token_mean,
            PPO(),
            rewards=dense_rewards if has_dense_rewards else return_at_last_turn,
            regularizers={"kl": KL(1e-3)},
        ),
        **settings,
    )
