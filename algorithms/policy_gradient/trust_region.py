"""The divergence of a policy from the one that sampled: a bound on it within a step, and its
estimate from recorded turns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Array

from agentrl_jax.algorithms.policy_gradient.device_loss import PROXIMAL_KL
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.sequences import TokenIndex, TrainingSequence, collate
from agentrl_jax.trajectories import Group

# (sequences, their tokens) -> the policy's log-prob of each token, [N]
TokenLogp = Callable[[list[TrainingSequence], TokenIndex], np.ndarray]


@dataclass(frozen=True)
class TrustRegion:
    """Policies with KL(proximal || policy) of at most `max_kl`, the mean over tokens."""

    max_kl: float

    def contains(self, sums: Mapping[str, Array]) -> bool:
        """Whether the policy that a minibatch was scored with is within: what `Learner.update` asks
        before each step. The first update of a step is at the proximal policy itself.
        """
        return float(sums[PROXIMAL_KL]) <= self.max_kl * max(float(sums["tokens"]), 1.0)


def sampler_kl(
    token_logp: TokenLogp, groups: Sequence[Group], process_group: ProcessGroup
) -> float:
    """KL(sampler || policy), the mean over the tokens that the policy sampled in all processes'
    groups, by the estimate exp(d) - 1 - d of d = logp - sampler_logp; 0 without tokens.
    """
    collated = collate(groups)
    logp = token_logp(collated.sequences, collated.token_index)
    difference = np.clip(logp - collated.token_values("sampler_logp"), -20.0, 20.0)
    local = [float(np.sum(np.expm1(difference) - difference)), len(difference)]
    total, tokens = np.sum(process_group.all_gather("KL from the sampler", local), axis=0)
    return float(total / max(tokens, 1.0))
