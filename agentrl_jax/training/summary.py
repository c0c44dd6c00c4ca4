"""The end of a run: the evaluation table, the comparison of the last two phases, summary.json."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from agentrl_jax.reporting import plots
from agentrl_jax.reporting.statistics import EvaluationSummary, difference_interval, summarize
from agentrl_jax.storage.files import write_json
from agentrl_jax.training.run import Run
from agentrl_jax.trajectories import Trajectory

REPORTED_PACKAGES = (
    "jax",
    "flax",
    "optax",
    "orbax-checkpoint",
    "transformers",
    "grain",
    "gymnasium",
    "numpy",
)


def finalize(run: Run, seconds: dict[str, float]) -> list[EvaluationSummary]:
    """Print the evaluation table, and write curves.png and summary.json.

    Args:
        run: all phases of which are trained and evaluated.
        seconds: of each part of the run, for the summary.

    Returns:
        The rows of the table.
    """
    agents = {
        label: agent
        for phase in run.experiment.phases.values()
        for label, agent in phase.rows().items()
    }
    players = run.experiment.evaluation.players
    names = [*players[:-1], *agents, *players[-1:]]
    trajectories = {name: run.evaluation_trajectories(name) for name in names}
    demonstrations = run.experiment.demonstrations
    displayed_names = (
        {demonstrations.player: "data set"} if demonstrations and not demonstrations.path else {}
    )
    summaries = [
        summarize(displayed_names.get(name, name), trajectories[name], run.env.score_anchors)
        for name in names
    ]
    compared, difference = compared_rows(agents), None
    if compared:
        difference = paired_difference(trajectories[compared[0]], trajectories[compared[1]])
    run.reporter.table(summaries, difference, compared or ("", ""))
    failures = run.process_group.all_gather("environment failures", run.runtime.failures.to_dict())
    if not run.process_group.is_coordinator:
        return summaries
    plots.draw(run.run_dir / "metrics.jsonl", run.run_dir / "curves.png", summaries)
    content = {
        "experiment": run.experiment.name,
        "seed": run.experiment.seed,
        "table": summaries,
        "difference": difference,
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "packages": {name: version(name) for name in REPORTED_PACKAGES},
        "environment_failures": failures[0] if run.process_group.count == 1 else failures,
    }
    write_json(run.run_dir / "summary.json", content)
    run.reporter.log(
        f"everything is in {run.run_dir}: "
        "summary.json, curves.png, metrics.jsonl, trajectories.jsonl, checkpoints"
    )
    return summaries


def compared_rows(agents: Mapping[str, str]) -> tuple[str, str] | None:
    """The last row and the one before it of the same agent; `agents` by the rows' labels."""
    *earlier, last = agents or [""]
    before = [row for row in earlier if agents[row] == agents[last]]
    return (last, before[-1]) if before else None


def paired_difference(
    after: Sequence[Trajectory], before: Sequence[Trajectory]
) -> tuple[float, float]:
    """The mean difference of the returns, paired by seed, and the half-width of its interval.

    Seeds whose episode failed in one of the two evaluations are left out.
    """
    returns_after, returns_before = (
        {t.seed: t.total_reward for t in trajectories} for trajectories in (after, before)
    )
    seeds = sorted(returns_before.keys() & returns_after.keys())
    return difference_interval(
        [returns_after[seed] for seed in seeds], [returns_before[seed] for seed in seeds]
    )
