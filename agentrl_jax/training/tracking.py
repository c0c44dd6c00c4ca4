"""What trackers are told of an experiment: its config, how it ended, its results."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from agentrl_jax.errors import Interrupted
from agentrl_jax.reporting.statistics import EvaluationSummary
from agentrl_jax.reporting.tracker import Status, TrackedRun
from agentrl_jax.reporting.tracker_thread import TrackerGroup
from agentrl_jax.storage import config_json
from agentrl_jax.training.config import Experiment

SAMPLES = 8  # episodes of the last evaluation in samples.jsonl
SAMPLES_FILE = "samples.jsonl"


def tracked_run(experiment: Experiment, run_dir: Path) -> TrackedRun:
    """The run as its trackers know it."""
    config = dict(flat_fields(config_json.to_json(experiment)))
    return TrackedRun(experiment.name, run_dir.resolve().name, run_dir / "trackers", config)


def flat_fields(data: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a config's JSON form by dotted name; classes and functions by their name."""
    if isinstance(data, list):
        data = {str(i): value for i, value in enumerate(data)}
    if not isinstance(data, dict):
        yield name, data
        return
    if "function" in data:
        yield name, data["function"]
        return
    if "class" in data and name:
        yield name, data["class"]
    for key, value in (data.get("fields") or data.get("dict") or _plain(data)).items():
        yield from flat_fields(value, f"{name}.{key}" if name else key)


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """A dict without the keys of `config_json.to_json`; {} where it has them and holds nothing."""
    return {key: x for key, x in data.items() if key not in ("class", "fields", "dict")}


def run_status(error: type[BaseException] | None) -> Status:
    """How a run ended, from the exception that ended it."""
    if error is None:
        return "finished"
    return "interrupted" if issubclass(error, Interrupted | KeyboardInterrupt) else "failed"


def track_results(
    trackers: TrackerGroup,
    run_dir: Path,
    evaluation: Path | None,
    summaries: Sequence[EvaluationSummary],
) -> None:
    """Give the trackers the table, and config, summary, curves and samples as artifacts.

    Args:
        trackers: of the run.
        run_dir: with the files.
        evaluation: the file of the last evaluation's episodes; None: there is none.
        summaries: the rows of the table.
    """
    if not trackers:
        return
    if evaluation is not None and evaluation.exists():
        with open(evaluation, "rb") as file:
            (run_dir / SAMPLES_FILE).write_bytes(b"".join(islice(file, SAMPLES)))
    names = (config_json.CONFIG_FILE, "summary.json", "curves.png", SAMPLES_FILE)
    paths = [run_dir / name for name in names if (run_dir / name).exists()]
    trackers.results(dict(table_values(summaries)), paths)


def table_values(summaries: Sequence[EvaluationSummary]) -> Iterator[tuple[str, float]]:
    """The numbers of the table: "GRPO/mean_return", "held-out/GRPO/win_rate"."""
    for s in summaries:
        prefix = f"{s.environment}/{s.name}" if s.environment else s.name
        numbers = {
            "mean_return": s.mean_return,
            "win_rate": s.win_rate,
            "turns": s.mean_turns,
            "episodes": s.episodes,
        }
        if s.episodes:
            yield from ((f"{prefix}/{k}", float(x)) for k, x in numbers.items() if x is not None)
