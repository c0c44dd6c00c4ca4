"""How uncertain a policy was, and what follows for branching: the rules of ARPO (arXiv 2507.19849) and AEPO (2510.14545)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.trajectories import Call

# (a uniform number in [0, 1), entropy now - entropy at the start, branches in a row on this chain) -> whether to branch
Rule = Callable[[float, float, int], bool]


def segment_entropy(call: Call, tokens: int, vocabulary: int) -> float:
    """H = -sum_k p_k log p_k / log |V| over the recorded alternatives, mean over the call's first `tokens` tokens.

    Raises UserError where the engine recorded no alternatives.
    """
    if call.alternative_logp is None:
        raise UserError("branching by entropy needs each token's likeliest alternatives: set config.engine.alternatives (ARPO: 10)")
    logp = call.alternative_logp[:tokens].astype(np.float64)
    p = np.exp(logp)
    return float(-(p * np.where(p > 0, logp, 0.0)).sum(axis=1).mean() / math.log(vocabulary))


@dataclass
class Uncertain:
    """ARPO: branch where clamp(U - weight dH, 0, 1) <= base."""

    weight: float = 0.2
    base: float = 0.5

    def __call__(self, uniform: float, more: float, in_a_row: int) -> bool:
        return min(max(uniform - self.weight * more, 0.0), 1.0) <= self.base


@dataclass
class Penalised:
    """AEPO: branch where clamp((U + weight dH) max(0, 1 - penalty c), 0, 1) >= base, c the branches in a row on the chain."""

    weight: float = 0.2
    base: float = 0.5
    penalty: float = 0.05

    def __call__(self, uniform: float, more: float, in_a_row: int) -> bool:
        kept = max(0.0, 1.0 - self.penalty * in_a_row)
        return min(max((uniform + self.weight * more) * kept, 0.0), 1.0) >= self.base


@dataclass
class Split:
    """AEPO's number of first rollouts: m = clamp(int(n sigmoid(beta (H_root - H_tool))) + 1, 1, n)."""

    beta: float = 0.5

    def __call__(self, leaves: int, root: float, tool: float) -> int:
        share = 1.0 / (1.0 + math.exp(-self.beta * (root - tool)))
        return min(max(int(leaves * share) + 1, 1), leaves)
