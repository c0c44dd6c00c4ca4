"""The metrics of a step of a phase: those of all processes' rollouts, and those of its updates."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from agentrl_jax.learner.program_meter import PendingWork
from agentrl_jax.training.per_agent import return_metrics, returns_by_agent
from agentrl_jax.training.rollout_metrics import episode_stats, rollout_metrics
from agentrl_jax.training.run import Run
from agentrl_jax.training.run_invariants import Violation
from agentrl_jax.trajectories import Group


class StepMetrics(NamedTuple):
    """The metrics of a step; those of its updates are still on the device."""

    step: int
    metrics: dict[str, Any]
    seconds: float
    groups: Sequence[Group]  # this process's experience of the step
    work: PendingWork  # of its programs


def mean_metrics(prefix: str, updates: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric but "tokens" over the updates of a step that have it."""
    names = [name for name in (updates[0] if updates else {}) if name != "tokens"]
    return {
        prefix + name: float(np.mean([m[name] for m in updates if name in m])) for name in names
    }


def gather_step(
    run: Run,
    label: str,
    groups: Sequence[Group],
    labels: Sequence[str],
    failures_before: dict[str, float],
    stop_requested: bool,
    violations: Sequence[Violation],
) -> tuple[dict[str, float], bool, list[Any]]:
    """The metrics of the rollouts of all processes, whether a process was asked to stop, and the
    invariants that do not hold in any of them.

    Args:
        run: of this process.
        label: of the exchange.
        groups: that this process sampled.
        labels: of the environments that have metrics of their own.
        failures_before: counts of environment failures before the step.
        stop_requested: of this process.
        violations: of this process.
    """
    failures = {
        name: count - failures_before.get(name, 0.0)
        for name, count in run.runtime.failures.metrics().items()
    }
    local = {
        "stop": stop_requested,
        "groups": episode_stats(groups),
        "failures": failures,
        "returns": returns_by_agent(groups, run.agent_names),
        "violations": violations,
        "tokens": {"rollout/tokens": float(sampled_tokens(groups))} if groups else {},
    }
    processes = run.process_group.all_gather(label, local)
    group_stats = run.process_group.interleave([process["groups"] for process in processes])
    metrics = rollout_metrics(group_stats, labels)
    metrics |= return_metrics([process["returns"] for process in processes])
    for name in ("failures", "tokens"):
        metrics |= sum_counts([process[name] for process in processes])
    all_violations = [values for process in processes for values in process["violations"]]
    return metrics, any(process["stop"] for process in processes), all_violations


def sampled_tokens(groups: Sequence[Group]) -> int:
    """The tokens that were sampled in the groups' episodes."""
    calls = (call for group in groups for t in group.trajectories for call in t.calls)
    return sum(len(call.action) for call in calls if call.source == "sampled")


def sum_counts(counts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The sum of each name over dicts that may lack it."""
    names = dict.fromkeys(name for process_counts in counts for name in process_counts)
    return {name: sum(process_counts.get(name, 0.0) for process_counts in counts) for name in names}
