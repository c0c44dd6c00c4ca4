"""Uncertainty of a policy and branching rules: ARPO (2507.19849) and AEPO (2510.14545)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Call

# (a uniform number in [0, 1), entropy now - entropy at the start, consecutive branches of this
# episode) -> whether to branch
BranchRule = Callable[[float, float, int], bool]


def segment_entropy(call: Call, max_tokens: int, vocab_size: int) -> float:
    """H = -sum_k p_k log p_k / log |V|, the mean over the call's first `max_tokens` tokens.

    The sum is over the recorded alternatives. Raises UserError where the engine recorded none.
    """
    if call.alternative_logp is None:
        raise UserError(
            "branching by entropy needs each token's likeliest alternatives: "
            "set config.engine.alternatives (ARPO: 10)"
        )
    logp = call.alternative_logp[:max_tokens].astype(np.float64)
    p = np.exp(logp)
    return float(-(p * np.where(p > 0, logp, 0.0)).sum(axis=1).mean() / math.log(vocab_size))


@dataclass
class ARPOBranchRule:
    """ARPO: branch where clamp(U - weight dH, 0, 1) <= base."""

    weight: float = 0.2
    base: float = 0.5

    def __call__(self, uniform: float, entropy_change: float, consecutive_branches: int) -> bool:
        return min(max(uniform - self.weight * entropy_change, 0.0), 1.0) <= self.base


@dataclass
class AEPOBranchRule:
    """AEPO: branch where clamp((U + weight dH) max(0, 1 - penalty c), 0, 1) >= base.

    c is the number of consecutive branches of the episode.
    """

    weight: float = 0.2
    base: float = 0.5
    penalty: float = 0.05

    def __call__(self, uniform: float, entropy_change: float, consecutive_branches: int) -> bool:
        scale = max(0.0, 1.0 - self.penalty * consecutive_branches)
        return min(max((uniform + self.weight * entropy_change) * scale, 0.0), 1.0) >= self.base


@dataclass
class AEPOInitialRollouts:
    """AEPO's initial rollouts: m = clamp(int(n sigmoid(beta (H_root - H_tool))) + 1, 1, n)."""

    beta: float = 0.5

    def __call__(self, num_leaves: int, root_entropy: float, tool_entropy: float) -> int:
        fraction = 1.0 / (1.0 + math.exp(-self.beta * (root_entropy - tool_entropy)))
        return min(max(int(num_leaves * fraction) + 1, 1), num_leaves)
