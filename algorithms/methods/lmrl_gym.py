"""LMRL-Gym's baselines (arXiv 2311.18232): ILQL, Monte-Carlo returns, online filtered behavior
cloning, PPO with imitation.

Behavior cloning is the fine-tuning phase of any experiment; filtered behavior cloning is
`Demonstrations(top_fraction=0.1)`.
"""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.gae import GAE
from agentrl_jax.algorithms.advantages.group import KLPenaltyReward
from agentrl_jax.algorithms.advantages.token_masks import MaskFaulty
from agentrl_jax.algorithms.methods import actor_critic
from agentrl_jax.algorithms.methods.ui_tars2 import has_failed, maximum_likelihood
from agentrl_jax.algorithms.offline.ilql import TokenValueTrainerConfig
from agentrl_jax.algorithms.offline.token_value_targets import ExpectileTarget, MonteCarloTarget
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.auxiliary import Imitation
from agentrl_jax.algorithms.policy_gradient.critic import CriticHeadConfig
from agentrl_jax.learner.optimizer import AdamWConfig


def ilql(
    gamma: float = 0.99,
    tau: float = 0.7,
    cql_weight: float = 0.01,
    polyak: float = 0.005,
    **settings: Any,
) -> TokenValueTrainerConfig:
    """ILQL (arXiv 2206.11871): Q regressed on r + gamma V, V on an expectile of the target Q, CQL's
    term.

    Released scripts: tau .95 and no CQL term in mazes, .8 in Text-Nav, .7 elsewhere; CQL's weight 1
    in chess; learning rates 1e-4, 3e-5 on Wordle, 1e-5 in dialogues. gamma is per token: six turns
    of six tokens discount by .7. In the released chained data the last state of an episode
    bootstraps on itself; here y = r.
    """
    return replace(
        TokenValueTrainerConfig(
            ExpectileTarget(gamma, tau),
            optimizer=AdamWConfig(3e-5, b2=0.95),
            cql_weight=cql_weight,
            polyak=polyak,
        ),
        **settings,
    )


def monte_carlo(
    gamma: float = 0.99, cql_weight: float = 0.01, polyak: float = 0.005, **settings: Any
) -> TokenValueTrainerConfig:
    """Q regressed on the discounted returns of the data (with `ValueGuidedConfig(twins=1)`: one Q
    head); no CQL term in mazes and chess.
    """
    return replace(
        TokenValueTrainerConfig(
            MonteCarloTarget(gamma),
            optimizer=AdamWConfig(1e-4, b2=0.95),
            cql_weight=cql_weight,
            polyak=polyak,
        ),
        **settings,
    )


def online_filtered_cloning(**settings: Any) -> PolicyGradientConfig:
    """Imitation of the successful rollouts of each round: the mean of -log p over their tokens (128
    rollouts per round, one epoch).
    """
    return replace(
        maximum_likelihood(mask=MaskFaulty((has_failed,)), optimizer=AdamWConfig(1e-4, b2=0.95)),
        **settings,
    )


def ppo_with_imitation(
    head: CriticHeadConfig,
    gamma: float = 1.0,
    kl: float = 1e-3,
    imitation: float = 1.0,
    **settings: Any,
) -> PolicyGradientConfig:
    """LMRL-Gym's PPO: KL in the reward, GAE with lambda .95, clips .2, and cross entropy on
    demonstrations in the same updates.

    Released scripts: learning rate 1e-5, 128 rollouts per round, one epoch; gamma .99 and no
    imitation in mazes. The demonstrations come from the source `MixedSource`.
    """
    return replace(
        actor_critic.ppo(
            head,
            advantage=GAE(gamma, 0.95, penalty=KLPenaltyReward(kl)),
            reference=True,
            rescore=True,
            optimizer=AdamWConfig(1e-5, b2=0.95),
            auxiliaries=(Imitation(imitation),) if imitation else (),
        ),
        **settings,
    )
