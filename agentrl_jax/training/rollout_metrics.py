"""Metrics of the rollouts of a step, over all processes."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from agentrl_jax.learner.sequences import context_cost
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.trajectories import Group, StopReason, Trajectory


def episode_stats(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What `rollout_metrics` needs of each sampled group, as plain data for other processes."""
    return [
        {
            "dropped": group.num_dropped,
            "turns_played": group.num_turns_played,
            "played": [_trajectory_stats(t) for t in group.trajectories],
        }
        for group in groups
        if {t.agent for t in group.trajectories} != {DEMONSTRATION}  # of a `MixedSource`
    ]


def _trajectory_stats(t: Trajectory) -> tuple[Any, ...]:
    """Return, turns, length of the last call or None, stop reason, success, context cost."""
    length = len(t.calls[-1].ids) if t.calls else None
    return (
        float(t.total_reward),
        len(t.turns),
        length,
        t.stop_reason,
        t.succeeded,
        context_cost(t),
    )


def rollout_metrics(group_stats: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means over the trajectories of a step, from the `episode_stats` of all its groups."""
    totals = {
        f"rollout/{name}": float(sum(group[name] for group in group_stats))
        for name in ("dropped", "turns_played")
    }
    trajectories = [trajectory for group in group_stats for trajectory in group["played"]]
    if not trajectories:
        return totals
    returns, turns, lengths, reasons, successes, costs = zip(*trajectories)
    rows, recomputed = np.mean(costs, axis=0).tolist()
    reason_counts = Counter(reasons)
    known_lengths = [length for length in lengths if length is not None]
    metrics = {
        "rollout/return": float(np.mean(returns)),
        "rollout/turns": float(np.mean(turns)),
        "rollout/length": float(np.mean(known_lengths or [0])),
        "rollout/rows": rows,
        "rollout/recomputed": recomputed,
        **totals,
    }
    for reason in get_args(StopReason):
        metrics[f"rollout/stopped/{reason}"] = reason_counts[reason] / len(trajectories)
    if None not in successes:  # else the environment does not report success
        metrics["rollout/success"] = float(np.mean(successes))
    return metrics
