"""`MlflowTracker`: MLflow (mlflow.org), by its own environment variables."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.reporting.tracker import Status, TrackedRun, Tracker

STATUSES = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
MAX_BATCH = 100  # parameters in a request; metrics may be more
MAX_VALUE = 6000  # characters of a parameter


class MlflowTracker(Tracker):
    """A run of MLflow at MLFLOW_TRACKING_URI: a server, a database, or a folder (`file:...`)."""

    name: ClassVar[str] = "mlflow"

    def __init__(self) -> None:
        self._client: Any = None
        self._id = ""

    def start(self, run: TrackedRun) -> str:
        client = self._client = import_module("mlflow").MlflowClient()
        if run.id:
            client.update_run(run.id, status="RUNNING")
            self._id = run.id
            return run.id
        experiment = client.get_experiment_by_name(run.project)
        experiment_id = (
            client.create_experiment(run.project)
            if experiment is None
            else experiment.experiment_id
        )
        self._id = client.create_run(experiment_id, run_name=run.name).info.run_id
        self._log_params(run.config)
        return self._id

    def _log_params(self, config: Mapping[str, Any]) -> None:
        entities: Any = import_module("mlflow.entities")
        params = [entities.Param(valid_name(key), str(x)[:MAX_VALUE]) for key, x in config.items()]
        for part in _parts(params, MAX_BATCH):
            self._client.log_batch(self._id, params=part)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        entities: Any = import_module("mlflow.entities")
        now = int(1000 * time.time())
        points = [entities.Metric(valid_name(name), x, now, step) for name, x in metrics.items()]
        for part in _parts(points, MAX_BATCH):
            self._client.log_batch(self._id, metrics=part)

    def summary(self, values: Mapping[str, float]) -> None:
        self.log(0, {f"summary/{name}": value for name, value in values.items()})

    def artifact(self, path: Path) -> None:
        self._client.log_artifact(self._id, str(path))

    def finish(self, status: Status) -> None:
        self._client.set_terminated(self._id, status=STATUSES[status])


def valid_name(name: str) -> str:
    """The name in the characters that MLflow allows: "RL (rival)/return" -> "RL _rival_/return"."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)


def _parts(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    return (list(items[i : i + size]) for i in range(0, len(items), size))
