"""Agents of screens and rooms: DART, ARPO, ActiveVLN, UI-S1."""

from typing import Any

from agentrl_jax.algorithms.advantages import SumOf, group_normalized
from agentrl_jax.algorithms.aggregation import step_mean, token_mean
from agentrl_jax.algorithms.experience_replay import NewestSuccess, SuccessReplay
from agentrl_jax.algorithms.filters import AccuracyBand, BalancedCrop, InTurn, StdAbove, VersionWindow
from agentrl_jax.algorithms.keying import group_of_turn, step_of_turn, turn_of_token
from agentrl_jax.algorithms.masks import Sources, TopEntropyTurns
from agentrl_jax.algorithms.mismatch import Clipped
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.process_rewards import expert_match, expert_match_as_released
from agentrl_jax.algorithms.quality import malformed
from agentrl_jax.algorithms.rewards import DistanceSuccess, EpisodePenalty
from agentrl_jax.algorithms.surrogates import GSPO, PPO
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.algorithms.turn_credit import RewardToGo, TurnKeyed, after_mismatch, before_mismatch, episode_return, turn_reward
from agentrl_jax.optimizer import AdamWConfig


def dart(
    trust: float = 1.0, entropy_share: float = 0.8, sequence_ratio: bool = True, seed: int = 0, **settings: Any
) -> PolicyGradientConfig:
    """DART (arXiv 2509.23866): every step is a sample; truncated importance weights, curated groups, steps of most entropy.

    Released values: w = min(exp(old - rollout), 1), clip .1 and .28, KL .1, rate 1e-7, weight decay .1, gradient clip 2, groups
    cropped to 8 with a success and a failure, the newest stored success in an all-failed group, the two newest versions of the
    weights. Its script takes the sequence's ratio (GSPO) with these widths, else PPO with dual clip 10. The cut to the 80 % of
    steps with most entropy is the paper's; in the released code it is commented out (`entropy_share` 1). The number of rollouts
    that follows success (the strategy `Adaptive`), the context (`LastImages(5, inner=LastMessages(35, opening=True))`) and the
    four modules are no part of the update.
    """
    filled: dict[str, Any] = {
        "advantage": TurnKeyed(episode_return, group_of_turn, std=True, keep_alone=True), "aggregation": step_mean,
        "surrogate": GSPO(0.1, 0.28) if sequence_ratio else PPO(0.1, 0.28, 10.0), "sequence": turn_of_token,
        "admit": VersionWindow(2), "replay": NewestSuccess(),
        "filter": InTurn((AccuracyBand(0.0, 1.0, include_high=False), BalancedCrop(8, seed))),
        "mask": TopEntropyTurns(entropy_share) if entropy_share < 1 else None, "mismatch": Clipped(high=trust), "rescore": True,
        "regularisers": {"kl": KL(0.1)}, "optimizer": AdamWConfig(1e-7, weight_decay=0.1, clip_norm=2.0),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def arpo_gui(replay: bool = True, format_penalty: float = 0.5, **settings: Any) -> PolicyGradientConfig:
    """ARPO for GUI agents (arXiv 2505.16282): GRPO; a stored success stands in for a member of an all-failed group.

    Released values: clip .2 and .3, dual clip 3, no KL, rate 1e-6, 8 successes per task; ratios start at 1 since the batch is rescored.
    Of an episode with a malformed action .5 is taken. Tasks must come again: `Rollouts(worlds=...)`. Without replay it is GRPO.
    """
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(0.2, 0.3, 3.0), "rescore": True,
        "replay": SuccessReplay() if replay else None, "optimizer": AdamWConfig(1e-6),
        "rewards": EpisodePenalty("format", format_penalty, malformed) if format_penalty else None,
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def active_vln(**settings: Any) -> PolicyGradientConfig:
    """ActiveVLN (arXiv 2509.12618): GRPO on 15 (1 - d / 3 m) for stopping within 3 m of the goal; clip .2, no KL, rate 1e-6.

    The early stop after twice the expert's steps and the second roll of all-failed groups are the strategies `Early` and
    `Reroll`. The aggregation is not stated: token mean, the default of the code that it builds on.
    """
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(), "rewards": DistanceSuccess(),
        "optimizer": AdamWConfig(1e-6),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def ui_s1(released: bool = False, gamma: float = 0.5, spread: float = 0.3, **settings: Any) -> PolicyGradientConfig:
    """UI-S1 (arXiv 2509.11543): agreement with an expert's steps, as the sum of an episode's and a step's advantage.

    Paper: r = .1 format + .4 type + .5 exact; returns (gamma .5) run through matched steps up to the first mismatch, whose reward counts;
    the episode's advantage is of whole returns. `released`: other constants, the mismatch alone with its reward, and in place
    of the episode's return each step's own reward, normalised over the task's steps. Groups below a spread of .3 are
    dropped (the paper: of advantages; here, as released, of returns). KL 1e-4, rate 1e-6. The walk along the expert's path is the
    strategy `SemiOnline`, whose patches are not trained.
    """
    stop = before_mismatch if released else after_mismatch
    steps = TurnKeyed(RewardToGo(gamma, stop), step_of_turn, std=True)
    episode = TurnKeyed(turn_reward, group_of_turn, std=True, keep_alone=True) if released else group_normalized
    filled: dict[str, Any] = {
        "advantage": SumOf(episode, steps), "aggregation": token_mean, "surrogate": PPO(),
        "rewards": expert_match_as_released if released else expert_match, "filter": StdAbove(spread, ddof=0, keep_alone=True),
        "regularisers": {"kl": KL(1e-4)}, "optimizer": AdamWConfig(1e-6), "mask": Sources(),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)
