"""LMRL-Gym's baselines (arXiv 2311.18232): ILQL, Monte-Carlo returns, online filtered behaviour cloning, PPO beside imitation.

Behaviour cloning is the fine-tuning phase of any experiment; filtered, with `Demonstrations(best=0.1)`.
"""

from typing import Any

from agentrl_jax.algorithms.advantages import KLInReward
from agentrl_jax.algorithms.auxiliary import Imitation
from agentrl_jax.algorithms.critics import HeadMaker
from agentrl_jax.algorithms.gae import GAE
from agentrl_jax.algorithms.masks import Without
from agentrl_jax.algorithms.methods import critics
from agentrl_jax.algorithms.methods.flywheel import likelihood, passed
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.token_values import Expectile, MonteCarlo, TokenValuesConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.trajectories import Trajectory


def ilql(gamma: float = 0.99, tau: float = 0.7, conservative: float = 0.01, polyak: float = 0.005, **settings: Any) -> TokenValuesConfig:
    """ILQL (arXiv 2206.11871): Q regressed on r + gamma V, V on an expectile of the target Q, CQL's term.

    Released scripts: tau .95 and no CQL term in mazes, .8 in Text-Nav, .7 elsewhere; CQL's weight 1 in chess; rates 1e-4, 3e-5 on
    Wordle, 1e-5 in dialogues. gamma counts tokens: six turns of six tokens discount by .7. In the released chained data the last state
    of an episode bootstraps on itself; here y = r.
    """
    filled: dict[str, Any] = {"optimizer": AdamWConfig(3e-5, b2=0.95), "conservative": conservative, "polyak": polyak}
    return TokenValuesConfig(Expectile(gamma, tau), **filled | settings)


def monte_carlo(gamma: float = 0.99, conservative: float = 0.01, polyak: float = 0.005, **settings: Any) -> TokenValuesConfig:
    """Q regressed on the discounted returns of the data (with `SteeredConfig(twins=1)`: one Q head); no CQL term in mazes and chess."""
    filled: dict[str, Any] = {"optimizer": AdamWConfig(1e-4, b2=0.95), "conservative": conservative, "polyak": polyak}
    return TokenValuesConfig(MonteCarlo(gamma), **filled | settings)


def not_passed(trajectory: Trajectory) -> bool:
    """It is not known to have succeeded."""
    return not passed(trajectory)


def online_filtered(**settings: Any) -> PolicyGradientConfig:
    """Rounds of rollouts, of which those that succeed are imitated: -log p of their tokens, the mean (128 rollouts a round, one epoch)."""
    return likelihood(**{"mask": Without((not_passed,)), "optimizer": AdamWConfig(1e-4, b2=0.95), **settings})


def ppo(head: HeadMaker, gamma: float = 1.0, kl: float = 1e-3, imitation: float = 1.0, **settings: Any) -> PolicyGradientConfig:
    """PPO as LMRL-Gym has it: KL in the reward, GAE with lambda .95, clips .2, and cross entropy on demonstrations beside it.

    Released scripts: rate 1e-5, 128 rollouts a round, one epoch; gamma .99 and no imitation in mazes. The source of demonstrations is
    `experiment.Mixed`.
    """
    filled: dict[str, Any] = {
        "advantage": GAE(gamma, 0.95, penalty=KLInReward(kl)), "reference": True, "rescore": True, "optimizer": AdamWConfig(1e-5, b2=0.95),
        "auxiliaries": (Imitation(imitation),) if imitation else (),
    }  # fmt: skip
    return critics.ppo(head, **filled | settings)
