"""With a critic: PPO over tokens, turns and both, VAPO, UI-TARS-2, VLA-RL, UFO, the Practitioner's Guide."""

from typing import Any

from agentrl_jax.algorithms.advantages import KLInReward, leave_one_out
from agentrl_jax.algorithms.aggregation import step_mean, token_mean
from agentrl_jax.algorithms.critics import CriticConfig, HeadMaker, turn_starts
from agentrl_jax.algorithms.filters import TopStd
from agentrl_jax.algorithms.gae import GAE, BiLevelGAE, LengthAdaptive, TurnGAE
from agentrl_jax.algorithms.keying import turn_of_token
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.quality import malformed
from agentrl_jax.algorithms.rewards import AttemptDecay, InTurn, RepeatedAnswers, TurnPenalty, at_last_turn, dense
from agentrl_jax.algorithms.surrogates import PPO, StepPPO
from agentrl_jax.algorithms.terms import KL, Entropy, PositiveLikelihood
from agentrl_jax.optimizer import AdamWConfig


def ppo(head: HeadMaker, gamma: float = 1.0, lam: float = 1.0, **settings: Any) -> PolicyGradientConfig:
    """PPO (arXiv 1707.06347) over tokens: GAE that passes over observations, whitened; clip .2, value clip .2, token mean."""
    filled: dict[str, Any] = {"advantage": GAE(gamma, lam), "aggregation": token_mean, "surrogate": PPO(), "critic": CriticConfig(head)}
    return PolicyGradientConfig(**filled | settings)


def turn_ppo(head: HeadMaker, gamma: float = 0.99, lam: float = 0.95, **settings: Any) -> PolicyGradientConfig:
    """PPO whose advantages are of turns: V at a turn's first token, one advantage for all its tokens, whitened."""
    critic = CriticConfig(head, aggregation=turn_starts)
    return ppo(head, **{"advantage": TurnGAE(gamma, lam, whiten=True), "critic": critic, **settings})


def bi_level_ppo(head: HeadMaker, turn_gamma: float = 0.95, **settings: Any) -> PolicyGradientConfig:
    """RAGEN's bi-level GAE (arXiv 2504.20073): over turns, then over the tokens of each; turn ends are the record's."""
    return ppo(head, **{"advantage": BiLevelGAE(turn_gamma=turn_gamma), **settings})


def vapo(head: HeadMaker, alpha: float = 0.05, warmup: int = 50, **settings: Any) -> PolicyGradientConfig:
    """VAPO (arXiv 2504.05118): GAE decoupled and adaptive to length, value pretraining, clip .2 and .28, likelihood of what went
    well (.1).

    The critic regresses on plain returns (lambda 1); the policy's lambda is 1 - 1 / (alpha l). `warmup`: about 50 steps of the
    critic alone.
    """
    filled: dict[str, Any] = {
        "advantage": GAE(lam=LengthAdaptive(alpha), critic_lam=1.0), "surrogate": PPO(0.2, 0.28),
        "critic": CriticConfig(head, warmup=warmup), "regularisers": {"positive": PositiveLikelihood(0.1)},
    }  # fmt: skip
    return ppo(head, **filled | settings)


def ui_tars_2(head: HeadMaker, alpha: float = 0.05, warmup: int = 50, **settings: Any) -> PolicyGradientConfig:
    """UI-TARS-2 (arXiv 2509.02544): PPO with decoupled, length-adaptive GAE, value pretraining and clip-higher.

    The report names these and does not give their numbers: alpha and warm-up are VAPO's (a public reuse takes alpha 1.5), the
    clips too. Rewards for format and length, of unknown weight, are left to `rewards`. Its merging of models is
    `models.averaging.interpolate`, its data flywheel `flywheel.FlywheelConfig`, its streaming rollouts `streaming.Streaming`.
    """
    return vapo(head, alpha, warmup, **{"regularisers": {}, **settings})


def vla_rl(head: HeadMaker, warmup: int = 5, **settings: Any) -> PolicyGradientConfig:
    """VLA-RL (arXiv 2505.18719): an action of several tokens is one step: one ratio, one value, one advantage (not whitened).

    gamma .99, lambda .95, clip .2, value clip .2, one epoch, 5 updates of the critic alone (released code); rates 5e-6 for the policy
    and 5e-5 for the critic. There critic and policy share a trunk; here the critic has its own, which starts from the
    policy's weights. Its curriculum is `Rollouts(worlds=..., order=SuccessDriven(...))`.
    """
    critic = CriticConfig(head, AdamWConfig(5e-5), clip=0.2, aggregation=turn_starts, warmup=warmup)
    filled: dict[str, Any] = {
        "advantage": TurnGAE(0.99, 0.95), "aggregation": step_mean, "surrogate": StepPPO(), "sequence": turn_of_token, "critic": critic,
        "optimizer": AdamWConfig(5e-6),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def ufo(head: HeadMaker, decay: float = 0.5, repetition: float = 0.5, share: float = 0.25, **settings: Any) -> PolicyGradientConfig:
    """UFO (arXiv 2507.14295): decay^k for success at attempt k, a penalty for repeated answers, PPO on the groups that vary most.

    Released code: .1 off for each malformed turn, GAE with gamma = lambda = 1, clip .2 and .28, entropy and KL .001, the top quarter of
    groups by the std of their rewards. decay 1, repetition 0, share 1 is PPO with these clips on the plain outcome.
    """
    rewards = InTurn((AttemptDecay(decay), RepeatedAnswers(repetition), TurnPenalty("format", 0.1, malformed)))
    filled: dict[str, Any] = {
        "rewards": rewards, "filter": TopStd(share), "surrogate": PPO(0.2, 0.28),
        "regularisers": {"entropy": Entropy(1e-3), "kl": KL(1e-3)},
    }  # fmt: skip
    return ppo(head, **filled | settings)


def practitioners_ppo(head: HeadMaker, rewards_are_dense: bool = True, **settings: Any) -> PolicyGradientConfig:
    """A Practitioner's Guide (arXiv 2510.01132), PPO: a reward for each turn, KL .01 in the reward, GAE with gamma 1, clip .2.

    Rates 1e-6 and, for the critic, 1e-5. Not dense: the whole return on the last turn.
    """
    filled: dict[str, Any] = {
        "rewards": dense if rewards_are_dense else at_last_turn, "advantage": GAE(penalty=KLInReward(0.01)),
        "critic": CriticConfig(head, AdamWConfig(1e-5)), "optimizer": AdamWConfig(1e-6), "reference": True, "rescore": True,
    }  # fmt: skip
    return ppo(head, **filled | settings)


def practitioners_rloo(rewards_are_dense: bool = True, **settings: Any) -> PolicyGradientConfig:
    """A Practitioner's Guide (arXiv 2510.01132), RLOO: KL .001 in the loss."""
    filled: dict[str, Any] = {"rewards": dense if rewards_are_dense else at_last_turn, "regularisers": {"kl": KL(1e-3)}}
    return PolicyGradientConfig(leave_one_out, token_mean, PPO(), **filled | settings)
