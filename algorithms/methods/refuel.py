"""REFUEL (arXiv 2410.04612), REBEL (2404.16767), and multi-turn DPO on the same pairs."""

from typing import Any

from agentrl_jax.algorithms.relative import Preferred, Regression, RelativeConfig
from agentrl_jax.optimizer import AdamWConfig


def refuel(eta: float, **settings: Any) -> RelativeConfig:
    """(d - eta (r - r'))^2 on pairs that part at any turn, one pass over each pair.

    Setting one (a language model as the user): eta 1e3 for rewards whose differences are about 1e-2, rate 3e-7 with 10 % warm-up and a
    cosine to 0, 128 pairs a step, 500 steps for each of two iterations, temperature .8, `Pairs(longest=5)`. The rate is of models of
    billions of weights.
    """
    filled: dict[str, Any] = {"optimizer": AdamWConfig(3e-7, warmup_steps=50, final_fraction=0.0, weight_decay=1e-6)}
    return RelativeConfig(Regression(eta), **filled | settings)


def refuel_online(kl: float = 0.05, unended: float = -10.0, **settings: Any) -> RelativeConfig:
    """Setting two (the user's turns are fixed by the data): four passes over each batch of 32 pairs, eta 1, the top 4 layers alone.

    Anthropic HH: KL .05 in the reward and -10 for a reply that did not end; UltraInteract: 0 and -4. Rate 3e-7, linear to 0 in the
    released scripts, a cosine here; temperature 1.
    """
    filled: dict[str, Any] = {
        "kl": kl, "unended": unended, "epochs": 4, "top_layers": 4,
        "optimizer": AdamWConfig(3e-7, final_fraction=0.0, weight_decay=1e-6),
    }  # fmt: skip
    return RelativeConfig(Regression(1.0), **filled | settings)


def rebel(eta: float, **settings: Any) -> RelativeConfig:
    """REFUEL's loss where a dialogue is one turn: two independent answers (`Independent(2)`), or `Pairs(cut=last_turn)`."""
    return refuel(eta, **settings)


def dpo(beta: float, fixed: bool = True, **settings: Any) -> RelativeConfig:
    """DPO (arXiv 2305.18290) on the same pairs: only the order of the two rewards counts, and the log-ratio is to the start.

    `fixed` off takes the log-ratio to the policy before each step, as REFUEL does: the same data with another loss.
    """
    filled: dict[str, Any] = {"fixed": fixed, "optimizer": AdamWConfig(3e-7, weight_decay=1e-6)}
    return RelativeConfig(Preferred(beta), **filled | settings)
