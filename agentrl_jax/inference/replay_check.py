"""Audit: sample the calls of a trajectory log again and compare (docs/engine.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.engine import Engine
from agentrl_jax.trajectories import Trajectory


@dataclass(frozen=True)
class ReplayReport:
    """How much of a trajectory log an engine reproduces, token by token."""

    calls: int
    tokens: int
    matching_tokens: int  # tokens before the first of their call that differs
    max_logp_gap: float  # the largest difference of log-probs among those
    # The first differing token: call and position. Near-ties, if the weights are those of the log.
    mismatches: tuple[tuple[int, int], ...]


def check_replay(trajectories: Sequence[Trajectory], engine: Engine) -> ReplayReport:
    """Sample every sampled call of a log again, from its prompt, key and sampling parameters.

    Each call starts from its recorded prompt, so a difference ends with its call. With the weights
    that sampled it and an engine of the same shape, everything is the same; programs of another
    shape sum in another order, and a near-tie may fall differently.

    Args:
        trajectories: of one log.
        engine: an engine with the weights of the log.

    Raises:
        ValueError: a call has images; the log does not hold their embeddings.
    """
    calls = [
        call for trajectory in trajectories for call in trajectory.calls if call.source == "sampled"
    ]
    if any(call.image_spans for call in calls):
        raise ValueError("calls with images cannot be replayed: the log holds no embeddings")
    futures = [engine.submit(call.prompt, call.sampling, call.key) for call in calls]
    matching_tokens, max_gap, mismatches = 0, 0.0, []
    for i, (call, future) in enumerate(zip(calls, futures)):
        replayed = future.result()
        engine.release(replayed)
        shorter = min(len(call.action), len(replayed.action))
        different = np.flatnonzero(call.action[:shorter] != replayed.action[:shorter])
        n = int(different[0]) if len(different) else shorter
        if len(different) or len(call.action) != len(replayed.action):
            mismatches.append((i, n))
        matching_tokens += n
        gap = np.abs(call.sampler_logp[:n] - replayed.sampler_logp[:n]).max(initial=0.0)
        max_gap = max(max_gap, float(gap))
    num_tokens = sum(len(call.action) for call in calls)
    return ReplayReport(len(calls), num_tokens, matching_tokens, max_gap, tuple(mismatches))
