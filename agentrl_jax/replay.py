"""A recorded rollout, sampled again from its log alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentrl_jax.engine import Engine
from agentrl_jax.trajectories import Trajectory


@dataclass(frozen=True)
class Replayed:
    """How much of a record an engine says again, token by token."""

    calls: int
    tokens: int
    same: int  # tokens up to the first of their call that differs
    logp_gap: float  # the largest difference of log-probs among those
    differing: tuple[tuple[int, int], ...]  # the call and its token where it does; near-ties, if the weights are those of the record


def replay(trajectories: Sequence[Trajectory], engine: Engine) -> Replayed:
    """Sample every recorded call again, from its prompt, key and sampling settings.

    Each call starts from its recorded prompt, so a difference ends with its call. With the weights that sampled it and an engine
    of the same shape, everything is the same; programs of another shape sum in another order, and a near-tie may fall differently.
    Calls with images cannot be replayed: the record does not hold their embeddings. Raises ValueError for those.
    """
    calls = [call for trajectory in trajectories for call in trajectory.calls if call.source == "sampled"]
    if any(call.image_spans for call in calls):
        raise ValueError("calls with images cannot be replayed: the record holds no embeddings")
    futures = [engine.submit(call.prompt, call.sampling, call.key) for call in calls]
    same, gap, differing = 0, 0.0, []
    for i, (call, future) in enumerate(zip(calls, futures)):
        again = future.result()
        engine.release(again)
        shorter = min(len(call.action), len(again.action))
        wrong = np.flatnonzero(call.action[:shorter] != again.action[:shorter])
        n = int(wrong[0]) if len(wrong) else shorter
        if len(wrong) or len(call.action) != len(again.action):
            differing.append((i, n))
        same += n
        gap = max(gap, float(np.abs(call.sampler_logp[:n] - again.sampler_logp[:n]).max(initial=0.0)))
    return Replayed(len(calls), sum(len(call.action) for call in calls), same, gap, tuple(differing))
