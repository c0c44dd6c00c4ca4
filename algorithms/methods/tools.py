"""Agents with tools and long contexts: SimpleTIR, ARPO, AEPO, SPEAR, IGPO, SUPO, WebAgent-R1, INSPO."""

from collections.abc import Sequence
from typing import Any

from agentrl_jax.algorithms.advantages import Advantage, Keyed, group_normalized
from agentrl_jax.algorithms.aggregation import RowSum, token_mean, turn_mean
from agentrl_jax.algorithms.auxiliary import SelfImitation
from agentrl_jax.algorithms.covariance import ClipCov, DropByCovariance
from agentrl_jax.algorithms.filters import AccuracyBand, InTurn, MinimumValid, Quality, StdAbove, TopStd
from agentrl_jax.algorithms.masks import AllOf, without_overlong, without_void
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.process_rewards import InfoGain, ToolUse, ToolVariety
from agentrl_jax.algorithms.quality import Fault, malformed, overlong, void
from agentrl_jax.algorithms.rewards import InsteadOfAll
from agentrl_jax.algorithms.rewards import InTurn as Rewards
from agentrl_jax.algorithms.schedules import Cosine
from agentrl_jax.algorithms.self_imitation import PositiveReplay
from agentrl_jax.algorithms.surrogates import PPO, GradientPreserving
from agentrl_jax.algorithms.terms import KL, Entropy
from agentrl_jax.algorithms.transforms import EntropyScaled, PrefixMean
from agentrl_jax.algorithms.turn_credit import IGPO
from agentrl_jax.optimizer import AdamWConfig


def simpletir(void_filter: bool = True, **settings: Any) -> PolicyGradientConfig:
    """SimpleTIR (arXiv 2509.02479): no token is trained of a trajectory with a void turn; it still counts in its group's
    statistics.

    Paper and code: clip .2 and .28, dual clip 3, no KL nor entropy, rate 1e-6; groups with std below 1e-3, accuracy outside [.1,
    .9] or fewer than 4 members that are not overlong are dropped, overlong trajectories masked. Episodes have 5 turns, then 10 once
    lengths stop growing: `Rollouts(turns=RaiseOnPlateau((5, 10), patience))`, whose patience nobody says.
    """
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(0.2, 0.28, 3.0),
        "mask": AllOf((without_void, without_overlong)) if void_filter else without_overlong,
        "filter": InTurn((StdAbove(1e-3), AccuracyBand(0.1, 0.9), MinimumValid(4, (overlong,)))), "optimizer": AdamWConfig(1e-6),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def arpo(tools: Sequence[str] = (), hard: bool = False, **settings: Any) -> PolicyGradientConfig:
    """ARPO (arXiv 2507.19849): GRPO over branches; the reward is -1 for a malformed answer, else the outcome, and .1 for using all
    `tools`.

    Soft attribution (default): each branch has its own advantage. `hard`: on tokens that branches share, the branches' mean. KL 0,
    rate 1e-6, two epochs. Branching after uncertain tool calls is the strategy `Branching`; without branches soft and hard are GRPO.
    """
    bonus = (ToolVariety(tools),) if tools else ()
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(), "epochs": 2, "optimizer": AdamWConfig(1e-6),
        "rewards": Rewards((*bonus, InsteadOfAll("format", -1.0, malformed))), "transforms": (PrefixMean(),) if hard else (),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def aepo(tools: Sequence[str] = (), entropy: float = 0.2, keep_gradient: bool = True, **settings: Any) -> PolicyGradientConfig:
    """AEPO (arXiv 2510.14545): ARPO with advantages scaled by (1 + .2 z(H)) and an upper clip that keeps its gradient; dual clip 3.

    The balance of first rollouts and branches is the strategy `Branching(first=Split(), rule=Penalised())`. entropy 0 and
    keep_gradient off: PPO's loss, with dual clip.
    """
    filled: dict[str, Any] = {
        "surrogate": GradientPreserving(dual=3.0) if keep_gradient else PPO(dual=3.0), "rescore": True,
        "transforms": (EntropyScaled(entropy),) if entropy else (),
    }  # fmt: skip
    return arpo(tools, **filled | settings)


def spear(
    longest: float,
    repetition: Sequence[Fault] = (),
    steps: int = 100,
    tools: bool = True,
    size: int = 2048,
    advantage: Advantage | None = None,
    **settings: Any,
) -> PolicyGradientConfig:
    """SPEAR (arXiv 2509.22601): self-imitation that grows while a reward for using tools fades, on a base without std (Dr.BoT).

    Code: replay of what was better than its group's mean, re-judged by the median of the last 10,240 group means, coefficient (1 -
    cos(pi t / T)) / 2 with T = 100 (ALFWorld), 200 (WebShop) or 300 (mathematics), Clip-Cov on it (share .02, between 1-2 and
    40-60: here 1 and 40); .1 a tool turn, at most 1, times (1 + cos(pi t / 200)) / 2; clip .2 and .28, dual clip 10, sums over
    tokens / `longest`, the top three quarters of groups by std, without void, overlong and (`repetition`: tests that the paper does
    not give) unreadable rollouts. `tools` off: no such reward, and trajectories without tools are replayed too. `advantage`:
    `gigpo`'s for its other base.
    """
    replay = SelfImitation(
        Cosine(0.0, 1.0, steps), PositiveReplay(size=size, needs_tool=tools), (DropByCovariance(ClipCov(0.02, 1.0, 40.0)),), RowSum(longest)
    )
    filled: dict[str, Any] = {
        "advantage": advantage or Keyed(std=False), "aggregation": RowSum(longest), "surrogate": PPO(0.2, 0.28, 10.0), "rescore": True,
        "rewards": ToolUse(Cosine(1.0, 0.0, 200)) if tools else None, "auxiliaries": (replay,),
        "filter": InTurn((Quality((void, overlong, *repetition)), TopStd(0.75))),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def igpo(gamma: float = 1.0, joint: bool = True, log: bool = False, **settings: Any) -> PolicyGradientConfig:
    """IGPO (arXiv 2510.14967): a turn earns how much likelier it made the right answer; returns to go of normalised turn rewards.

    Paper: z over all turns of a group (`joint`) or information gain and outcome apart; malformed answers -2; clip .2, KL and
    entropy .001, rate 1e-6. gamma is not stated (a rebuild takes .95). The probabilities come from a probe before the update, see
    `probing`. The first released code centres by column (`ColumnCentred`), for comparison only.
    """
    filled: dict[str, Any] = {
        "advantage": IGPO(gamma, joint), "aggregation": token_mean, "surrogate": PPO(), "optimizer": AdamWConfig(1e-6),
        "rewards": Rewards((InsteadOfAll("format", -2.0, malformed), InfoGain(log))),
        "regularisers": {"kl": KL(1e-3), "entropy": Entropy(1e-3)},
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def supo(**settings: Any) -> PolicyGradientConfig:
    """SUPO (arXiv 2510.06727): one return per rollout, however many contexts it was split into; overlong rollouts count and are
    masked.

    Clip .2 and .28, token mean, no KL nor entropy, rate 1e-6. Statistics of this library never depend on rows, so the summaries are the
    business of a context manager alone: `contexts.asking.Summarize`.
    """
    filled: dict[str, Any] = {
        "advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(0.2, 0.28), "mask": without_overlong,
        "optimizer": AdamWConfig(1e-6),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def webagent_r1(**settings: Any) -> PolicyGradientConfig:
    """WebAgent-R1 (arXiv 2505.16421), M-GRPO: three nested means over rollouts, actions and tokens; std + 1e-4, KL .001, rate 1e-6.

    Its released gradient clip is .01. Each action is scored in the context that it was sampled in (the released training sequence puts
    placeholders for all observations but the last); which observations stay is a context manager's business.
    """
    filled: dict[str, Any] = {
        "advantage": Keyed(eps=1e-4), "aggregation": turn_mean, "surrogate": PPO(), "regularisers": {"kl": KL(1e-3)},
        "optimizer": AdamWConfig(1e-6, clip_norm=0.01),
    }  # fmt: skip
    return PolicyGradientConfig(**filled | settings)


def inspo(**settings: Any) -> PolicyGradientConfig:
    """INSPO (arXiv 2512.01945): GRPO within the group of a question and an instruction; the population is `contexts.instructed`'s.

    Nothing of the update is its own: with one instruction it is GRPO.
    """
    return PolicyGradientConfig(**{"advantage": group_normalized, "aggregation": token_mean, "surrogate": PPO(), **settings})
