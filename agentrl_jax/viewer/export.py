"""A page that needs no server: the front end with some episodes of each run inside."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.storage.files import atomic_write
from agentrl_jax.viewer.api import compare
from agentrl_jax.viewer.episode_query import EpisodeQuery, select
from agentrl_jax.viewer.page import page_with_data
from agentrl_jax.viewer.run_view import RunView, summary_to_json


def export_page(runs: Sequence[RunView], path: Path, episodes: int) -> None:
    """Write one file that shows the runs.

    Args:
        path: is replaced.
        episodes: how many of each run it holds, those of the last steps first.

    Raises:
        UserError: the file cannot be written.
    """
    data = {"runs": [exported_run(run, episodes) for run in runs], "compare": compare(runs)}
    try:
        with atomic_write(path) as unfinished:
            unfinished.write_text(page_with_data(data), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {path} ({error.strerror}): free some space or name another file"
        ) from error


def exported_run(run: RunView, episodes: int) -> dict[str, Any]:
    """What the page shows of one run."""
    table = run.index.table()
    rows = select(table, EpisodeQuery())[:episodes].tolist()
    summaries = [(table.episode_id(row), table.summary(row)) for row in rows]
    steps = dict.fromkeys((summary.phase, summary.step) for _, summary in summaries)
    return {
        "description": run.description(),
        "rows": [summary_to_json(*row) for row in summaries],
        "episodes": {name: run.episode(name) for name, _ in summaries},
        "timelines": {
            f"{phase}/{int(step)}": run.timeline(phase, step)
            for phase, step in steps
            if step == step  # not of damaged lines
        },
        "metrics": run.metrics(),
    }
