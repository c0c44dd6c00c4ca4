"""`TrackioTracker`: Trackio (huggingface.co/docs/trackio), by its own environment variables."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.reporting.tracker import Status, TrackedRun, Tracker


class TrackioTracker(Tracker):
    """A run of Trackio: in TRACKIO_DIR on this machine, or in a Space (TRACKIO_SPACE_ID)."""

    name: ClassVar[str] = "trackio"

    def __init__(self) -> None:
        self._run: Any = None

    def start(self, run: TrackedRun) -> str:
        trackio: Any = import_module("trackio")
        self._run = trackio.init(
            project=run.project,
            name=run.id or run.name,
            config=dict(run.config),
            resume="must" if run.id else "never",
            embed=False,
        )
        return self._run.name

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def summary(self, values: Mapping[str, float]) -> None:
        self._run.log({f"summary/{name}": value for name, value in values.items()})

    def artifact(self, path: Path) -> None:
        self._run.log_artifact(str(path), name=f"{self._run.name}-{path.stem}", type="result")

    def finish(self, status: Status) -> None:
        self._run.finish()
