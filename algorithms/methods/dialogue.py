"""Attempts, dialogues, games and curricula: SCoRe, MinD, EPO (both), ScalingInter-RL, G-RA, MARS, BFS-Prover-V2."""

from collections.abc import Sequence
from typing import Any

from agentrl_jax.algorithms.advantages import group_normalized, static_weights
from agentrl_jax.algorithms.aggregation import token_mean, turn_mean
from agentrl_jax.algorithms.masks import Agents, LikelihoodBand, Quantiles, Sources
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.process_rewards import Compactness, JudgedTurns
from agentrl_jax.algorithms.quality import illegal, malformed
from agentrl_jax.algorithms.rewards import Gate, InStages, InTurn, OnlyTurn, Progress, TurnPenalty
from agentrl_jax.algorithms.schedules import PhaseWeight, Staged
from agentrl_jax.algorithms.surrogates import PPO, reinforce
from agentrl_jax.algorithms.terms import KL, AttemptKL, EntropyBand
from agentrl_jax.algorithms.turn_credit import MARS, LargestIsOne, RewardToGo, TurnKeyed
from agentrl_jax.optimizer import AdamWConfig


def self_correcting(
    first_stage: int, alpha: float = 10.0, beta1: float = 0.01, beta2: float = 0.1, gamma: float = 0.0, **settings: Any
) -> PolicyGradientConfig:
    """SCoRe (arXiv 2409.12917): two attempts, REINFORCE with KL, in two stages.

    For `first_stage` steps only the second attempt's reward counts, and beta2 beside the usual beta1 holds the first attempt where it
    was; then both rewards, and alpha (r2 - r1) on the second. Values: mathematics alpha 10, beta1 .01, beta2 .1, rate 5e-6, batch 512;
    code beta2 .25, rate 1e-5. The share of the 3,000 and 1,500 steps that the first stage takes is not stated, hence no default. An
    attempt is paid its own reward (`gamma` 0); with gamma 1 the first is paid for the second too. alpha 0 and no first stage are
    REINFORCE over two turns. First attempts of the base model (`TwoAttempts(share=...)`) are not trained.
    """
    progress = Progress(alpha)
    stages = Staged((OnlyTurn(1), progress), (0, first_stage)) if first_stage else Staged((progress,), (0,))
    held = Staged(((beta1 + beta2, beta1), (beta1,)), (0, first_stage)) if first_stage else Staged(((beta1,),), (0,))
    filled: dict[str, Any] = {
        "advantage": TurnKeyed(RewardToGo(gamma), key=None), "aggregation": turn_mean, "surrogate": reinforce, "rewards": InStages(stages),
        "regularisers": {"kl": AttemptKL(held)}, "optimizer": AdamWConfig(5e-6), "mask": Sources(),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def mind(compactness: float, markers: Sequence[str], format_penalty: float, **settings: Any) -> PolicyGradientConfig:
    """MinD (arXiv 2505.19788): GRPO on format, accuracy and compactness (a turn that holds several thinking units is penalised).

    The weights, and the test for several units, are not published: none has a default here. Its units are calls of
    the context manager `contexts.asking.Decomposed`.
    """
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(),
        "rewards": InTurn((TurnPenalty("format", format_penalty, malformed), Compactness(compactness, markers))),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def epo_strategic(agent: str = "strategist", scale: float = 0.1, **settings: Any) -> PolicyGradientConfig:
    """EPO for strategic reasoning (arXiv 2502.12486): REINFORCE on judged turns of a strategist, the largest return of a dialogue being 1.

    gamma .99; a mean over turns of the mean over their tokens; no ratio, clip nor KL (released code). `scale`: SOTOPIA's goal score has 10
    points. Rate and epochs are a full fine-tuning's (cosine, warm-up 3 %, 3 epochs). The strategist beside a frozen agent is the
    strategy `Guided`.
    """
    filled: dict[str, Any] = {
        "advantage": TurnKeyed(LargestIsOne(0.99), key=None), "aggregation": turn_mean, "surrogate": reinforce,
        "rewards": JudgedTurns(scale), "mask": Agents((agent,)),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def epo(band: EntropyBand | None = None, penalty: float = 0.1, **settings: Any) -> PolicyGradientConfig:
    """EPO (arXiv 2509.22576): an entropy bonus with a band around earlier rollouts' entropy, over GRPO (or PPO, by `advantage`,
    `critic`).

    Released: coefficient .001, band weight 1, KL .01, .1 off for an illegal action; code defaults low .8, high 1.2, height .1,
    scripts low 0, high 2, height .05 (SciWorld) or .1 (ALFWorld); the band counts in the second half of an episode and by the phase
    of 150 epochs. As released the penalty has no gradient; by default it has one here (`EntropyBand(released=True)` is the other).
    Without band it is the base with an entropy bonus.
    """
    term = band or EntropyBand(phase=PhaseWeight())
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(), "regularisers": {"entropy": term, "kl": KL(0.01)},
        "rewards": TurnPenalty("illegal", penalty, illegal) if penalty else None, "rescore": True, "optimizer": AdamWConfig(3e-6),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def scaling_inter(**settings: Any) -> PolicyGradientConfig:
    """ScalingInter-RL (AgentGym-RL, arXiv 2509.08755): GRPO with KL .001, clip .2, two epochs, rate 1e-6; its curriculum is the
    source's.

    `Rollouts(turns=Stepped((8, 12, 15), 80))` for WebArena; (10, 20, 30) every 100 steps for TextCraft and SciWorld, (6, 13, 20)
    for BabyAI, (5, 8, 10) for SearchQA; the fixed horizons it is compared with are 15, 30, 20, 20 and 5.
    """
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(), "regularisers": {"kl": KL(1e-3)}, "epochs": 2,
        "optimizer": AdamWConfig(1e-6),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def gated(order: Sequence[str], thresholds: Sequence[float], **settings: Any) -> PolicyGradientConfig:
    """G-RA (arXiv 2508.10548): a part of the reward counts only where those above it pass their gates; over GRPO, or any base by keywords.

    The paper's thresholds are not known; at -inf nothing is gated (its baseline D-RA).
    """
    filled = {"advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(), "rewards": Gate(order, thresholds)}
    return PolicyGradientConfig(**filled | settings)


def mars(**settings: Any) -> PolicyGradientConfig:
    """MARS (MARSHAL, arXiv 2510.15414): turn rewards centred by player, returns to go, distinct values centred, whitened;
    self-play.

    Released: clip .2 with a dual clip (whose bound is not stated; 3 is PPO's usual one), KL .2, .05 off for a malformed turn, rate
    1e-6. One policy in all seats of a game is the rollout strategy `SelfPlay`.
    """
    filled: dict[str, Any] = {
        "advantage": MARS(), "aggregation": token_mean, "surrogate": PPO(dual=3.0), "rewards": TurnPenalty("format", 0.05, malformed),
        "regularisers": {"kl": KL(0.2)}, "optimizer": AdamWConfig(1e-6),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def bfs_prover(low: float, high: float, **settings: Any) -> PolicyGradientConfig:
    """BFS-Prover-V2 (arXiv 2509.06493): likelihood of the steps on a found proof whose negative log-likelihood lies in the middle.

    Every step has the weight that its `info["weight"]` says (1 on the path that solved it). The quantiles are not published, hence no
    defaults; 0 and 1 keep all. The search, its planner and the rounds of expert iteration are no part of the update.
    """
    filled: dict[str, Any] = {
        "advantage": static_weights, "aggregation": token_mean, "surrogate": reinforce, "mask": LikelihoodBand(Quantiles(low, high)),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)
