"""ArCHer (Zhou et al. 2024, arXiv 2402.19446), online and offline, and the baseline that it calls CHAI.

In the released code the critic's rate is 2e-5 and the policy's 1e-5 (1e-6 on Twenty Questions), both times 32, since gradients of 32
micro-batches are added up: `scale` and `StepSum(1 / 32)` do that here, and the default is the mean. Clipped to norm 1 and given to
Adam, the two differ only in how often the clip holds. It scores utterances without their end; here the end is trained as any token.
"""

from typing import Any

from agentrl_jax.algorithms.advantages import static_weights
from agentrl_jax.algorithms.aggregation import StepSum, token_mean
from agentrl_jax.algorithms.archer import ArcherConfig, Exponential, beyond_baseline
from agentrl_jax.algorithms.critics import CriticConfig, HeadMaker
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.surrogates import PPO, reinforce
from agentrl_jax.algorithms.utterance_learner import CriticMaker, EncoderMaker, ValuesConfig
from agentrl_jax.algorithms.utterance_values import OnData, Returns
from agentrl_jax.optimizer import AdamWConfig


def actor(**settings: Any) -> PolicyGradientConfig:
    """-A sum_i log p(a_i | s, a_<i), the mean over utterances, all tokens with the end: no ratio, no entropy, no KL; rate 1e-5."""
    filled: dict[str, Any] = {"advantage": static_weights, "aggregation": StepSum(), "surrogate": reinforce, "optimizer": _adam(1e-5)}
    return PolicyGradientConfig(**filled | settings)


def clipped_actor(epochs: int = 4, **settings: Any) -> PolicyGradientConfig:
    """PPO as the low level: clip .2, several steps on the same utterances. The framework allows it; no number is published."""
    return actor(**{"surrogate": PPO(), "epochs": epochs, **settings})


def baseline_actor(head: HeadMaker, rate: float = 1e-5, **settings: Any) -> PolicyGradientConfig:
    """With the token-level baseline b(s, a_<i) of Guess My City: weights A - b, b drawn to A by .5 (A - b)^2, a trunk of its own."""
    baseline = CriticConfig(head, _adam(rate), clip=float("inf"), aggregation=token_mean)
    return actor(**{"advantage": beyond_baseline, "critic": baseline, **settings})


def values(critic: CriticMaker, encoder: EncoderMaker, **settings: Any) -> ValuesConfig:
    """Twin Q and V with slow copies (.1 after each step), 256 exchanges a step, gamma .95, rate 2e-5, a time limit is an end.

    gamma: .95 in the code; the paper has .98 for the detective game, .9 for WebShop, .95 elsewhere.
    """
    return ValuesConfig(critic, encoder, **{"optimizer": _adam(2e-5), **settings})


def archer(values: ValuesConfig, actor: PolicyGradientConfig, **settings: Any) -> ArcherConfig:
    """Online: 50 critic and 3 actor steps of 256 an iteration, which plays 128 episodes (WebShop 512).

    Replay: 100,000 turns in the code, 10,000 in the paper. Warm-up: 10 iterations for the detective game, City and the subset of Twenty
    Questions (the subset's in the paper alone), 20 for all of it and WebShop.
    """
    return ArcherConfig(values, actor, **{"capacity": 100_000, "warmup": 10, **settings})


def monte_carlo_values(critic: CriticMaker, encoder: EncoderMaker, gamma: float = 0.95, **settings: Any) -> ValuesConfig:
    """The ablation whose Q and V are regressed on returns: fast early, and wrong about what other policies have said."""
    return values(critic, encoder, **{"goal": Returns(gamma), **settings})


def offline_values(
    critic: CriticMaker, encoder: EncoderMaker, gamma: float = 0.99, tau: float = 0.9, **settings: Any
) -> ValuesConfig:  # fmt: skip
    """OfflineArcher's: V drawn to the expectile .9 of Qbar of the data's utterances (SARSA: tau .5), Polyak .05, batch 128, rate 1e-5."""
    filled: dict[str, Any] = {"goal": OnData(gamma, tau), "polyak": 0.05, "batch": 128, "optimizer": _adam(1e-5)}
    return values(critic, encoder, **filled | settings)


def archer_offline(values: ValuesConfig, actor: PolicyGradientConfig, inverse_temperature: float = 1.0, **settings: Any) -> ArcherConfig:
    """IQL + AWR: -exp(A inverse_temperature) log p of the data's utterances, rate 1e-4. The source is `Demonstrations`.

    Published on Twenty Questions: BC -16.8, filtered BC -15.4, IQL + AWR -14.1, SARSA + AWR -14.5.
    """
    filled: dict[str, Any] = {"weight": Exponential(inverse_temperature), "on_data": True}
    return ArcherConfig(values, actor, **{**OFFLINE, **filled, **settings})


def reinforce_offline(values: ValuesConfig, actor: PolicyGradientConfig, **settings: Any) -> ArcherConfig:
    """IQL + REINFORCE on the policy's own utterances, of which the critic saw none: published to collapse (-20).

    It recovers (-15.3) beside imitation: `actor(auxiliaries=(Imitation(1.0),))` and `imitated=128`.
    """
    return ArcherConfig(values, actor, **OFFLINE | settings)


def chai(values: ValuesConfig, choices: int = 5, **settings: Any) -> ArcherConfig:
    """The policy stays as it is; wherever it acts, 5 utterances are drawn and the one of the largest least target Q is said."""
    return ArcherConfig(values, actor(), **{"actor_steps": 0, "choices": choices, "warmup": 0, **settings})


# One step of each on 128 turns, as the released code takes them on each batch of its data, 10 times over.
OFFLINE: dict[str, Any] = {"critic_steps": 1, "actor_steps": 1, "batch": 128, "warmup": 0}


def _adam(rate: float) -> AdamWConfig:
    return AdamWConfig(rate, b2=0.999)
