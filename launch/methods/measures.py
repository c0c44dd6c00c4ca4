"""What the comparisons measure beside success: numbers from a run's metrics and from the episodes of its last evaluation."""

from pathlib import Path

import numpy as np

from agentrl_jax import journal
from agentrl_jax.launch.sweeps.measures import Measure, last_row, values_of
from agentrl_jax.trajectories import Trajectory


def evaluated(run_dir: Path) -> list[Trajectory]:
    """The episodes of the policy after the last phase."""
    return [trajectory for _, trajectory in journal.read(run_dir / "evaluations" / f"{last_row(run_dir)['name']}.jsonl")]


def within(metric: str, low: float, high: float, start: int = 3) -> Measure:
    """The share of steps in which a metric lies between multiples of its mean over the first `start` steps."""

    def of(run_dir: Path) -> float:
        values = np.asarray(values_of(run_dir, metric))
        usual = values[:start].mean()
        return float(((values > low * usual) & (values < high * usual)).mean())

    return Measure(f"share of steps with {metric} at {low:g} to {high:g} of its start", of)


def until(metric: str, level: float, cost: str, what: str, steps: int = 3, free: int = 0) -> Measure:
    """What the last phase has cost when the mean of a metric's last `steps` steps reaches a level; all of it where it never does.

    `cost` is the metric that is summed; the first `free` steps count nothing.
    """

    def of(run_dir: Path) -> float:
        values, costs = np.asarray(values_of(run_dir, metric)), np.asarray(values_of(run_dir, cost))
        costs[:free] = 0
        means = np.convolve(values, np.ones(steps) / steps, "valid") if len(values) >= steps else np.zeros(0)
        reached = np.flatnonzero(means >= level)
        return float(np.cumsum(costs)[reached[0] + steps - 1 if len(reached) else -1])

    return Measure(f"{what} until {metric} is {level:g} (mean of {steps} steps), or all", of)


def turns_until(metric: str, level: float) -> Measure:
    """Turns really played until then."""
    return until(metric, level, "rollout/turns_played", "turns played")


def seconds_until(metric: str, level: float) -> Measure:
    """Wall time until then, but for the first step, which compiles."""
    return until(metric, level, "time/seconds", "seconds", free=1)


def _distinct(run_dir: Path) -> float:
    shares = []
    for trajectory in evaluated(run_dir):
        answers = [turn.info["answer"] for turn in trajectory.turns if turn.info.get("answer") is not None]
        if len(answers) > 1:
            shares.append(len(set(answers)) / len(answers))
    return float(np.mean(shares)) if shares else 1.0


def _correction(run_dir: Path) -> float:
    rewards = np.array([[turn.reward for turn in trajectory.turns] for trajectory in evaluated(run_dir)])
    return float((rewards[:, 1] - rewards[:, 0]).mean())


distinct_answers = Measure("distinct answers of those given in an episode with several", _distinct)
correction = Measure("success of the second attempt minus that of the first", _correction)
