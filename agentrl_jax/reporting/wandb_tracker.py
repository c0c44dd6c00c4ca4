"""`WandbTracker`: Weights & Biases (docs.wandb.ai), by its own environment variables."""

import os
import uuid
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.reporting.tracker import Status, TrackedRun, Tracker

INIT_SECONDS = 30.0  # within which the server must answer
EXIT_CODES = {"finished": 0, "interrupted": 255, "failed": 1}


class WandbTracker(Tracker):
    """A run of Weights & Biases; offline where WANDB_MODE says so or nobody is logged in.

    An offline run is in RUN/trackers/wandb/wandb/ and is uploaded by `wandb sync`.
    """

    name: ClassVar[str] = "wandb"

    def __init__(self) -> None:
        self._run: Any = None

    def start(self, run: TrackedRun) -> str:
        wandb: Any = import_module("wandb")
        mode = os.environ.get("WANDB_MODE")
        if mode is None:
            mode = "online" if wandb.login(prompt=False, verify=False) else "offline"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", run.project),
            name=run.name,
            id=run.id or uuid.uuid4().hex[:8],
            dir=run.folder,
            config=dict(run.config),
            resume="allow",
            mode=mode,
            # The terminal is the run's.
            settings=wandb.Settings(console="off", silent=True, init_timeout=INIT_SECONDS),
        )
        return self._run.id

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def summary(self, values: Mapping[str, float]) -> None:
        self._run.summary.update(dict(values))

    def artifact(self, path: Path) -> None:
        self._run.log_artifact(str(path), name=f"{self._run.id}-{path.stem}", type="result")

    def finish(self, status: Status) -> None:
        self._run.finish(exit_code=EXIT_CODES[status])
