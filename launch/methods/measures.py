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


def seconds_until(metric: str, level: float, window: int = 3) -> Measure:
    """The wall time of the last phase, but for its first step, which compiles, until a mean of `window` steps reaches a level."""

    def of(run_dir: Path) -> float:
        values, seconds = np.asarray(values_of(run_dir, metric)), np.cumsum(values_of(run_dir, "time/seconds"))
        means = np.convolve(values, np.ones(window) / window, "valid")
        reached = np.flatnonzero(means >= level)
        last = int(reached[0]) + window - 1 if len(reached) else len(seconds) - 1
        return float(seconds[last] - seconds[0])

    return Measure(f"seconds until {metric} is {level:g} over {window} steps, or all", of)


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
