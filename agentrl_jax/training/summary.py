"""The end of a run: the evaluation table, the comparison of the last two phases, summary.json."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentrl_jax.reporting import plots
from agentrl_jax.reporting.statistics import EvaluationSummary, difference_interval, summarize
from agentrl_jax.storage import config_json
from agentrl_jax.storage.code_version import code_version
from agentrl_jax.storage.run_folder import write_summary
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.run import Run
from agentrl_jax.training.task_source import TaskSource
from agentrl_jax.training.tracking import track_results
from agentrl_jax.trajectories import Trajectory


def finalize(run: Run, seconds: dict[str, float]) -> list[EvaluationSummary]:
    """Print the evaluation table, and write curves.png and summary.json.

    Args:
        run: all phases of which are trained and evaluated.
        seconds: of each part of the run, for the summary.

    Returns:
        The rows of the table.
    """
    summaries = [row for label in run.evaluations.sources for row in environment_rows(run, label)]
    compared, difference = compared_rows(_agents(run.experiment)), None
    if compared:
        difference = paired_difference(*map(run.evaluations.all_trajectories, compared))
    run.reporter.table(summaries, difference, compared or ("", ""))
    failures = run.process_group.all_gather("environment failures", run.runtime.failures.to_dict())
    if not run.process_group.is_coordinator:
        return summaries
    plots.draw(run.run_dir / "metrics.jsonl", run.run_dir / "curves.png", summaries)
    content = {
        "experiment": run.experiment.name,
        "seed": run.experiment.seed,
        "config_digest": config_json.digest(run.experiment),
        "table": summaries,
        "difference": difference,
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "packages": code_version(),
        "environment_failures": failures[0] if run.process_group.count == 1 else failures,
    }
    if run.best_checkpoints:
        content["best_checkpoints"] = run.best_checkpoints
    write_summary(run.run_dir, content)
    track_results(run.reporter.trackers, run.run_dir, _last_evaluation(run), summaries)
    run.reporter.log(
        f"everything is in {run.run_dir}: "
        "summary.json, curves.png, metrics.jsonl, trajectories, checkpoints"
    )
    return summaries


def _last_evaluation(run: Run) -> Path | None:
    """The file of the last phase's evaluation episodes in the first environment."""
    rows, labels = list(_agents(run.experiment)), list(run.evaluations.sources)
    return run.run_dir / "evaluations" / labels[0] / f"{rows[-1]}.jsonl" if rows else None


def _agents(experiment: Experiment) -> dict[str, str]:
    """The agent of each row of a phase, by the row's label."""
    rows = (phase.rows() for phase in experiment.phases.values())
    return {label: agent for phase_rows in rows for label, agent in phase_rows.items()}


def environment_rows(run: Run, label: str) -> list[EvaluationSummary]:
    """The rows of one environment: scripted policies, phases, and the last scripted policy."""
    experiment = run.experiment
    players, source = experiment.evaluation.players, run.evaluations.sources[label]
    displayed_names = (
        {experiment.demonstrations.player: "data set"}
        if experiment.demonstrations and is_demonstrated(experiment, source)
        else {}
    )
    envs = run.environments.of(source, label, experiment.environment)
    anchors = envs[0].score_anchors if len(envs) == 1 else None
    return [
        summarize(
            displayed_names.get(name, name),
            run.evaluations.trajectories(name, label),
            anchors,
            label,
        )
        for name in (*players[:-1], *_agents(experiment), *players[-1:])
    ]


def is_demonstrated(experiment: Experiment, source: TaskSource) -> bool:
    """Whether the run's own demonstrations are episodes in the environments of a task source."""
    config, default = experiment.demonstrations, experiment.environment
    if config is None or config.path:
        return False
    demonstrated, evaluated = (
        [(spec.name, spec.options) for spec in x.labeled_environments(default).values()]
        for x in (config.task_source or default, source)
    )
    return all(environment in demonstrated for environment in evaluated)


def compared_rows(agents: Mapping[str, str]) -> tuple[str, str] | None:
    """The last row and the one before it of the same agent; `agents` by the rows' labels."""
    *earlier, last = agents or [""]
    before = [row for row in earlier if agents[row] == agents[last]]
    return (last, before[-1]) if before else None


def paired_difference(
    after: Sequence[Trajectory], before: Sequence[Trajectory]
) -> tuple[float, float]:
    """The mean difference of the returns, paired by task, and the half-width of its interval.

    Tasks whose episode failed in one of the two evaluations are left out.
    """
    returns_after, returns_before = (
        {t.task: t.total_reward for t in trajectories} for trajectories in (after, before)
    )
    tasks = sorted(returns_before.keys() & returns_after.keys())
    return difference_interval(
        [returns_after[task] for task in tasks], [returns_before[task] for task in tasks]
    )
