"""ArCHer (Zhou et al. 2024, arXiv 2402.19446), online and offline, and its baseline CHAI.

In the released code the critic's learning rate is 2e-5 and the policy's 1e-5 (1e-6 on Twenty
Questions), both times 32, since the gradients of 32 microbatches are summed: `loss_scale` and
`StepSum(1 / 32)` do that here, and the default is the mean. With gradients clipped to norm 1 and
Adam, the two differ only in how often the clip applies. It scores utterances without their
end-of-turn token; here that token is trained like any other.
"""

from dataclasses import replace
from typing import Any

from agentrl_jax.algorithms.advantages.group import static_weights
from agentrl_jax.algorithms.advantages.token_weights import StepSum, token_mean
from agentrl_jax.algorithms.advantages.transforms import whiten
from agentrl_jax.algorithms.archer.advantage_weights import (
    ExponentialWeight,
    advantage_minus_baseline,
)
from agentrl_jax.algorithms.archer.algorithm import ArcherConfig
from agentrl_jax.algorithms.archer.critic_losses import IQLLoss, MonteCarloLoss
from agentrl_jax.algorithms.archer.critic_trainer import (
    EncoderBuilder,
    UtteranceCriticBuilder,
    UtteranceCriticTrainerConfig,
)
from agentrl_jax.algorithms.archer.joint_critic import JointCriticBuilder
from agentrl_jax.algorithms.archer.joint_trainer import JointCriticTrainerConfig
from agentrl_jax.algorithms.archer.replay_buffer import RecentShare
from agentrl_jax.algorithms.archer.twin_trainer import TwinCriticTrainerConfig
from agentrl_jax.algorithms.archer.utterance_advantages import AnchoredAdvantage, BetaRule
from agentrl_jax.algorithms.losses.policy import REINFORCE
from agentrl_jax.algorithms.losses.ppo import PPO
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.algorithms.policy_gradient.critic import CriticConfig, CriticHeadConfig
from agentrl_jax.learner.optimizer import AdamWConfig


def reinforce_actor(**settings: Any) -> PolicyGradientConfig:
    """-A sum_i log p(a_i | s, a_<i) over all tokens with the end, the mean over utterances: no
    ratio, no entropy, no KL; learning rate 1e-5.
    """
    return replace(
        PolicyGradientConfig(
            advantage=static_weights,
            aggregation=StepSum(),
            surrogate=REINFORCE(),
            optimizer=_adam(1e-5),
        ),
        **settings,
    )


def ppo_actor(epochs: int = 4, **settings: Any) -> PolicyGradientConfig:
    """PPO as the low level: clip .2, several updates on the same utterances. The paper allows it
    and publishes no number.
    """
    return replace(reinforce_actor(surrogate=PPO(), epochs=epochs), **settings)


def token_baseline_actor(
    head: CriticHeadConfig, rate: float = 1e-5, **settings: Any
) -> PolicyGradientConfig:
    """With the token-level baseline b(s, a_<i) of Guess My City: weights A - b, b regressed on A by
    .5 (A - b)^2, with a trunk of its own.
    """
    baseline = CriticConfig(head, _adam(rate), clip=float("inf"), aggregation=token_mean)
    return replace(reinforce_actor(advantage=advantage_minus_baseline, critic=baseline), **settings)


def utterance_critic(
    critic: UtteranceCriticBuilder, encoder: EncoderBuilder, **settings: Any
) -> UtteranceCriticTrainerConfig:
    """Twin Q and V with target networks (Polyak .1 after each step), 256 exchanges per step, gamma
    .95, learning rate 2e-5, a time limit is a terminal state.

    gamma: .95 in the code; the paper has .98 for the detective game, .9 for WebShop, .95 elsewhere.
    """
    return replace(
        UtteranceCriticTrainerConfig(critic=critic, encoder=encoder, optimizer=_adam(2e-5)),
        **settings,
    )


def joint_critic(critic: JointCriticBuilder, **settings: Any) -> JointCriticTrainerConfig:
    """A critic that reads an episode once, on a causal trunk that starts from the policy's weights
    (after fine-tuning): V_k at the last token before an utterance, Q_k at its last token.

    In place of `utterance_critic`, whose settings are the defaults. Whether an utterance repeats
    another needs a product of state and utterance, which encodings made apart lack; and a turn
    costs a fraction of an episode's pass in place of two texts. `models.joint_critic` has the
    critic, `JointCriticConfig()`.
    """
    return replace(JointCriticTrainerConfig(critic=critic, optimizer=_adam(2e-5)), **settings)


def archer(
    critic: TwinCriticTrainerConfig, actor: PolicyGradientConfig, **settings: Any
) -> ArcherConfig:
    """Online: 50 critic and 3 actor steps of 256 exchanges per iteration of 128 episodes (WebShop
    512).

    Replay: 100,000 turns in the code, 10,000 in the paper. Warm-up: 10 iterations for the detective
    game, City and the subset of Twenty Questions (the subset's only in the paper), 20 for all of it
    and WebShop.
    """
    return replace(ArcherConfig(critic, actor, capacity=100_000, warmup=10), **settings)


def anchored_actor(**settings: Any) -> PolicyGradientConfig:
    """The low level of `anchored_archer`: PPO's clip .2, token mean, whitened advantages, two
    minibatches; ratios are to the recorded log-probs. The learning rate does not fall.
    """
    return replace(
        PolicyGradientConfig(
            advantage=static_weights,
            transforms=(whiten,),
            aggregation=token_mean,
            surrogate=PPO(),
            minibatches=2,
            optimizer=_adam(1e-5),
        ),
        **settings,
    )


def anchored_archer(
    critic: TwinCriticTrainerConfig,
    actor: PolicyGradientConfig,
    *,
    beta: float | BetaRule = 0.5,
    group_size: int = 8,
    gamma: float | None = None,
    **settings: Any,
) -> ArcherConfig:
    """ArCHer whose actor trains on the iteration's own turns, with A = beta (G - m) + (1 - beta)
    (Q(s, a) - m): m is the mean of Q over `group_size` utterances that the policy samples in the
    same state, G the return-to-go, discounted by `gamma` (None: the critic's).

    There is no warm-up: the critic takes `pretrain_steps` steps on the demonstrations of the first
    iteration, so the source is a `MixedSource(only_first_step=True)`; 0 leaves them out. Later
    batches are drawn from recent and older turns in equal parts. Ours; ArCHer's own advantage on
    the same turns is beta 0, PPO with a baseline from the critic beta 1.

    Args:
        critic: `joint_critic(...)`, or `utterance_critic(...)`.
        actor: `anchored_actor(...)`; its clip, epochs, minibatches, `max_kl` and entropy bonus are
            the trust region.
        beta: a number, `ScheduledBeta` or `MeasuredBeta`.
        group_size: 0: m is V(s), and no utterances are sampled.
        gamma: of G, per turn.
        settings: further fields of `ArcherConfig`.
    """
    return replace(
        ArcherConfig(
            critic,
            actor,
            anchored=AnchoredAdvantage(beta, group_size, gamma),
            recent=RecentShare(),
            pretrain_steps=300,
            actor_steps=1,
            warmup=0,
        ),
        **settings,
    )


def monte_carlo_critic(
    critic: UtteranceCriticBuilder, encoder: EncoderBuilder, gamma: float = 0.95, **settings: Any
) -> UtteranceCriticTrainerConfig:
    """The ablation whose Q and V are regressed on returns: fast early, and biased on utterances of
    other policies.
    """
    return replace(utterance_critic(critic, encoder, loss=MonteCarloLoss(gamma)), **settings)


def offline_critic(
    critic: UtteranceCriticBuilder,
    encoder: EncoderBuilder,
    gamma: float = 0.99,
    tau: float = 0.9,
    **settings: Any,
) -> UtteranceCriticTrainerConfig:
    """OfflineArcher's: V regressed on the expectile .9 of the target Q of the data's utterances
    (SARSA: tau .5), Polyak .05, batch 128, learning rate 1e-5.
    """
    return replace(
        utterance_critic(
            critic, encoder, loss=IQLLoss(gamma, tau), polyak=0.05, batch=128, optimizer=_adam(1e-5)
        ),
        **settings,
    )


def archer_offline(
    critic: TwinCriticTrainerConfig,
    actor: PolicyGradientConfig,
    inverse_temperature: float = 1.0,
    **settings: Any,
) -> ArcherConfig:
    """IQL + AWR: -exp(A inverse_temperature) log p of the data's utterances, learning rate 1e-4.
    The source is `Demonstrations`.

    Published on Twenty Questions: BC -16.8, filtered BC -15.4, IQL + AWR -14.1, SARSA + AWR -14.5.
    """
    return replace(
        reinforce_offline(
            critic, actor, weight_fn=ExponentialWeight(inverse_temperature), train_on_replay=True
        ),
        **settings,
    )


def reinforce_offline(
    critic: TwinCriticTrainerConfig, actor: PolicyGradientConfig, **settings: Any
) -> ArcherConfig:
    """IQL + REINFORCE on the policy's own utterances, none of which the critic has seen: published
    to collapse (-20).

    With imitation it recovers (-15.3): `reinforce_actor(auxiliaries=(Imitation(1.0),))` and
    `imitation_batch=128`.
    """
    # One step of each on 128 turns, as the released code does on each batch of its data, 10 epochs.
    return replace(
        ArcherConfig(critic, actor, critic_steps=1, actor_steps=1, batch=128, warmup=0), **settings
    )


def chai(critic: TwinCriticTrainerConfig, best_of_n: int = 5, **settings: Any) -> ArcherConfig:
    """The policy is not trained; at every turn 5 utterances are sampled and the one with the
    largest minimum target Q is chosen.
    """
    return replace(
        ArcherConfig(critic, reinforce_actor(), actor_steps=0, best_of_n=best_of_n, warmup=0),
        **settings,
    )


def _adam(rate: float) -> AdamWConfig:
    return AdamWConfig(rate, b2=0.999)
