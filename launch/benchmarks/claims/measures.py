"""Further measures of comparisons, from a run's metrics and the episodes of its last evaluation."""

from pathlib import Path

import numpy as np

from agentrl_jax.launch.sweeps.measures import Measure, last_row, metric_values
from agentrl_jax.storage import trajectory_log
from agentrl_jax.trajectories import Trajectory


def evaluation_trajectories(run_dir: Path) -> list[Trajectory]:
    """The evaluation episodes of the policy after the last phase."""
    row = last_row(run_dir)
    path = run_dir / "evaluations" / row.get("environment", "") / f"{row['name']}.jsonl"
    return [record.trajectory for record in trajectory_log.read(path)]


def fraction_within(metric: str, low: float, high: float, start: int = 3) -> Measure:
    """The fraction of steps with a metric between multiples of its mean over the first `start`."""

    def compute(run_dir: Path) -> float:
        values = np.asarray(metric_values(run_dir, metric))
        usual = values[:start].mean()
        return float(((values > low * usual) & (values < high * usual)).mean())

    return Measure(f"share of steps with {metric} at {low:g} to {high:g} of its start", compute)


def cost_until(
    metric: str, level: float, cost: str, unit: str, steps: int = 3, free_steps: int = 0
) -> Measure:
    """The cost of the last phase until a metric's mean over `steps` steps reaches a level.

    The cost of the whole phase where it never does. `cost` is the metric that is summed, except
    over the first `free_steps` steps.
    """

    def compute(run_dir: Path) -> float:
        values, costs = (
            np.asarray(metric_values(run_dir, metric)),
            np.asarray(metric_values(run_dir, cost)),
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


def seconds_until_level(metric: str, level: float) -> Measure:
    """Seconds until a metric reaches a level, without the first step, which compiles."""
    return cost_until(metric, level, "time/seconds", "seconds", free_steps=1)


def context_tokens_per_success(steps: int) -> Measure:
    """Tokens of an episode's last context over the success rate, both means of the last steps."""

    def compute(run_dir: Path) -> float:
        length, success = (
            np.mean(metric_values(run_dir, name)[-steps:])
            for name in ("rollout/length", "rollout/success")
        )
        return float(length / success) if success else np.inf

    return Measure(f"tokens of a last context per success, over the last {steps} steps", compute)


def _distinct(run_dir: Path) -> float:
    fractions = []
    for trajectory in evaluation_trajectories(run_dir):
        answers = [
            turn.info["answer"] for turn in trajectory.turns if turn.info.get("answer") is not None
        ]
        if len(answers) > 1:
            fractions.append(len(set(answers)) / len(answers))
    return float(np.mean(fractions)) if fractions else 1.0


def _correction(run_dir: Path) -> float:
    rewards = np.array(
        [
            [turn.reward for turn in trajectory.turns]
            for trajectory in evaluation_trajectories(run_dir)
        ]
    )
    return float((rewards[:, 1] - rewards[:, 0]).mean())


distinct_answers = Measure("distinct answers of those given in an episode with several", _distinct)
correction = Measure("success of the second attempt minus that of the first", _correction)
