"""Further measures of comparisons, from a run's metrics and the episodes of its last evaluation."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from agentrl_jax.launch.sweeps.measures import Measure, last_row, metric_values
from agentrl_jax.storage import jsonl, trajectory_log
from agentrl_jax.trajectories import Trajectory


def evaluation_trajectories(run_dir: Path, phase: str = "") -> list[Trajectory]:
    """The evaluation episodes of the policy after a phase; empty: the last one."""
    row = last_row(run_dir, phase)
    path = run_dir / "evaluations" / row.get("environment", "") / f"{row['name']}.jsonl"
    return [record.trajectory for record in trajectory_log.read(path)]


def cost_until(
    metric: str, level: float, cost: str, unit: str, steps: int = 3, free_steps: int = 0
) -> Measure:
    """The cost of the last phase until a metric's mean over `steps` steps reaches a level.

    The cost of the whole phase where it never does. `cost` is the metric that is summed, except
    over the first `free_steps` steps.
    """

    def compute(run_dir: Path, phase: str = "") -> float:
        values, costs = (
            np.asarray(metric_values(run_dir, metric, phase)),
            np.asarray(metric_values(run_dir, cost, phase)),
        )
        costs[:free_steps] = 0
        means = (
            np.convolve(values, np.ones(steps) / steps, "valid")
            if len(values) >= steps
            else np.zeros(0)
        )
        reached = np.flatnonzero(means >= level)
        return float(np.cumsum(costs)[reached[0] + steps - 1 if len(reached) else -1])

    return Measure(f"{unit} until {metric} is {level:g} (mean of {steps} steps), or all", compute)


def turns_until_level(metric: str, level: float) -> Measure:
    """Turns played until a metric reaches a level."""
    return cost_until(metric, level, "rollout/turns_played", "turns played")


def log_turns_until_level(metric: str, level: float) -> Measure:
    """The natural logarithm of `turns_until_level`, so that a difference is a ratio of turns."""
    turns = turns_until_level(metric, level)

    def compute(run_dir: Path, phase: str = "") -> float:
        return float(np.log(turns.compute(run_dir, phase)))

    return Measure(f"log of {turns.name}", compute)


def seconds_until_level(metric: str, level: float) -> Measure:
    """Seconds until a metric reaches a level, without the first step, which compiles."""
    return cost_until(metric, level, "time/seconds", "seconds", free_steps=1)


def context_tokens_per_success(steps: int) -> Measure:
    """Tokens of an episode's last context over the success rate, both means of the last steps."""

    def compute(run_dir: Path, phase: str = "") -> float:
        length, success = (
            np.mean(metric_values(run_dir, name, phase)[-steps:])
            for name in ("rollout/length", "rollout/success")
        )
        return float(length / success) if success else np.inf

    return Measure(f"tokens of a last context per success, over the last {steps} steps", compute)


def _distinct(run_dir: Path, phase: str = "") -> float:
    fractions = []
    for trajectory in evaluation_trajectories(run_dir, phase):
        answers = [
            turn.info["answer"] for turn in trajectory.turns if turn.info.get("answer") is not None
        ]
        if len(answers) > 1:
            fractions.append(len(set(answers)) / len(answers))
    return float(np.mean(fractions)) if fractions else 1.0


def _correction(run_dir: Path, phase: str = "") -> float:
    """A step's mean return is the sum of both attempts' success rates, its success the second's."""
    second, both = (
        np.asarray(metric_values(run_dir, name, phase))
        for name in ("rollout/success", "rollout/return")
    )
    return float((2 * second - both).mean())


def _failed_length(run_dir: Path, phase: str = "") -> float:
    lengths: dict[bool, list[int]] = {True: [], False: []}
    for trajectory in evaluation_trajectories(run_dir, phase):
        lengths[bool(trajectory.success)].append(sum(len(call.action) for call in trajectory.calls))
    if not all(lengths.values()):
        return np.nan
    return float(np.log(np.mean(lengths[False]) / np.mean(lengths[True])))


def _layout_collisions(run_dir: Path, phase: str = "") -> float:
    """A malformed layout has none in its info."""
    last = [trajectory.turns[-1].info for trajectory in evaluation_trajectories(run_dir, phase)]
    return float(np.mean([info.get("collision", 1.0) for info in last]))


distinct_answers = Measure("distinct answers of those given in an episode with several", _distinct)
correction = Measure(
    "success of the second attempt minus that of the first, mean over all steps", _correction
)
failed_length = Measure(
    "log of the tokens sampled in a failed evaluation episode over those in a successful one",
    _failed_length,
)
layout_collisions = Measure(
    "colliding pairs of an evaluation episode's last layout, over all pairs; 1 where malformed",
    _layout_collisions,
)


# column -> metric (docs/metrics.md)
QUANTITIES = {
    "success": "rollout/success",
    "groups with a signal": "groups_with_signal",
    "entropy": "entropy",
    "turns": "rollout/turns",
    "gradient norm": "gradient_norm",
}


def training_means(
    run_dir: Path, phase: str = "", metrics: Iterable[str] = tuple(QUANTITIES.values())
) -> dict[str, list[float]]:
    """By metric, its mean over the first and over the last quarter of the steps that logged it.

    Args:
        run_dir: a finished run.
        phase: empty: the last.
        metrics: their names (docs/metrics.md).
    """
    lines = [line for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")]
    phase = phase or lines[-1]["phase"]
    means = {}
    for metric in metrics:
        logged = (line.get(metric) for line in lines if line["phase"] == phase)
        values = [x for x in logged if x is not None]
        if values:  # not every phase logs it
            count = max(1, len(values) // 4)
            means[metric] = [float(np.mean(values[:count])), float(np.mean(values[-count:]))]
    return means
