"""Metrics of the rollouts of a step, over all processes."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from agentrl_jax.learner.sequences import context_cost
from agentrl_jax.storage.demonstration_file import DEMONSTRATION
from agentrl_jax.trajectories import Group, StopReason, Trajectory, environment_label


def episode_stats(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What `rollout_metrics` needs of each sampled group, as plain data for other processes."""
    return [
        {
            "environment": environment_label(group.task),
            "dropped": group.num_dropped,
            "turns_played": group.num_turns_played,
            "played": [_trajectory_stats(t) for t in group.trajectories],
        }
        for group in groups
        if {t.agent for t in group.trajectories} != {DEMONSTRATION}  # of a `MixedSource`
    ]


def _trajectory_stats(t: Trajectory) -> tuple[Any, ...]:
    """Return, turns, length of the last call or None, truncated, stop reason, success, context
    cost, and the sums of the reward's named parts.
    """
    calls = t.calls
    length = calls[-1].length if calls else None
    return (
        float(t.total_reward),
        len(t.turns),
        length,
        t.truncated,
        t.stop_reason,
        t.succeeded,
        context_cost(t),
        t.reward_parts,
    )


def rollout_metrics(
    group_stats: Sequence[dict[str, Any]], labels: Sequence[str] = (), prefix: str = "rollout"
) -> dict[str, float]:
    """Means over the trajectories of a step, from the `episode_stats` of all its groups.

    Args:
        group_stats: of all groups of the step.
        labels: of environments, each of which has the same metrics of its own groups beside those
            of all, as <prefix>/<label>/<name>; without an episode only its counts.
        prefix: of the names.
    """
    metrics = _group_metrics(group_stats, prefix)
    for label in labels:
        groups = [group for group in group_stats if group["environment"] == label]
        metrics |= _group_metrics(groups, f"{prefix}/{label}")
    return metrics


def _group_metrics(group_stats: Sequence[dict[str, Any]], prefix: str) -> dict[str, float]:
    totals = {
        f"{prefix}/{name}": float(sum(group[name] for group in group_stats))
        for name in ("dropped", "turns_played")
    }
    trajectories = [trajectory for group in group_stats for trajectory in group["played"]]
    if not trajectories:
        return totals
    returns, turns, lengths, truncated, reasons, successes, costs, parts = zip(*trajectories)
    rows, recomputed = np.mean(costs, axis=0).tolist()
    reason_counts = Counter(reasons)
    known_lengths = [length for length in lengths if length is not None]
    metrics = {
        f"{prefix}/return": float(np.mean(returns)),
        f"{prefix}/turns": float(np.mean(turns)),
        f"{prefix}/length": float(np.mean(known_lengths or [0])),
        f"{prefix}/rows": rows,
        f"{prefix}/recomputed": recomputed,
        f"{prefix}/truncated": float(np.mean(truncated)),
        **totals,
    }
    for reason in get_args(StopReason):
        metrics[f"{prefix}/stopped/{reason}"] = reason_counts[reason] / len(trajectories)
    for name in sorted({name for trajectory_parts in parts for name in trajectory_parts}):
        values = [trajectory_parts.get(name, 0.0) for trajectory_parts in parts]
        metrics[f"{prefix}/reward/{name}"] = float(np.mean(values))
    if None not in successes:  # else the environment does not report success; cut episodes failed
        metrics[f"{prefix}/success"] = float(np.mean(successes))
    return metrics
