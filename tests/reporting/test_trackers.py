"""Trackers: what they are told, in order and once; failures that neither stop nor slow a run."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentrl_jax.errors import Interrupted, UserError
from agentrl_jax.launch.trackers import make_trackers
from agentrl_jax.reporting import tracker_thread
from agentrl_jax.reporting.mlflow_tracker import MlflowTracker, valid_name
from agentrl_jax.reporting.reporter import Reporter
from agentrl_jax.reporting.statistics import EvaluationSummary
from agentrl_jax.reporting.tracker import Status, TrackedRun, Tracker
from agentrl_jax.reporting.tracker_thread import TrackerThread, open_trackers
from agentrl_jax.reporting.trackio_tracker import TrackioTracker
from agentrl_jax.reporting.wandb_tracker import WandbTracker
from agentrl_jax.training.tracking import flat_fields, run_status, track_results


@dataclass
class RecordingTracker(Tracker):
    """Keeps what it is told; `fault` is called first and may raise or wait."""

    name: ClassVar[str] = "recording"
    fault: Callable[[str], None] = lambda method: None
    events: list[tuple[Any, ...]] = field(default_factory=list)

    def _add(self, method: str, *values: Any) -> None:
        self.fault(method)
        self.events.append((method, *values))

    def start(self, run: TrackedRun) -> str:
        self._add("start", run.id, dict(run.config))
        return run.id or "first"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._add("log", step, dict(metrics))

    def summary(self, values: Mapping[str, float]) -> None:
        self._add("summary", dict(values))

    def artifact(self, path: Path) -> None:
        self._add("artifact", path.name)

    def finish(self, status: Status) -> None:
        self._add("finish", status)


def tracked(folder: Path) -> TrackedRun:
    return TrackedRun("wordle", "mine", folder, {"seed": 3})


def fail(method: str) -> None:
    raise ConnectionError("no route to host\nsecond line")


def test_a_tracker_is_told_of_every_step_and_the_results_in_order(tmp_path: Path):
    tracker = RecordingTracker()
    reporter = Reporter(tmp_path, quiet=True)
    reporter.trackers = open_trackers([tracker], tracked(tmp_path / "trackers"), pytest.fail)
    reporter.step("sft", 0, {"loss": 2.0, "entropy": float("nan")}, 0.5)
    reporter.step("rl", 0, {"loss": 1.0}, 0.25)
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "GRPO.jsonl").write_text("".join(f"{n}\n" for n in range(20)))
    row = EvaluationSummary("GRPO", 4, 1.5, 0.5, None, None, 3.0, None, environment="maze")
    track_results(reporter.trackers, tmp_path, tmp_path / "GRPO.jsonl", [row])
    reporter.trackers.finish("finished")
    reporter.close()
    assert tracker.events == [
        ("start", "", {"seed": 3}),
        ("log", 0, {"time/seconds": 0.5, "loss": 2.0}),  # without what is not finite
        ("log", 1, {"time/seconds": 0.25, "loss": 1.0}),  # steps are counted over all phases
        (
            "summary",
            {"maze/GRPO/mean_return": 1.5, "maze/GRPO/turns": 3.0, "maze/GRPO/episodes": 4.0},
        ),
        ("artifact", "summary.json"),
        ("artifact", "samples.jsonl"),
        ("finish", "finished"),  # and not failed, as the reporter's end alone would say
    ]
    assert (tmp_path / "samples.jsonl").read_text() == "".join(f"{n}\n" for n in range(8))


def test_a_resumed_run_continues_the_tracked_one_and_repeats_no_step(tmp_path: Path):
    for steps in ((0, 1, 2), (1, 2, 3)):  # it was killed after step 2; the checkpoint is of step 1
        tracker = RecordingTracker()
        thread = TrackerThread(tracker, tracked(tmp_path), pytest.fail)
        for step in steps:
            thread.log(step, {})
        thread.finish("interrupted")
    assert tracker.events[0] == ("start", "first", {"seed": 3})
    assert [event[1] for event in tracker.events if event[0] == "log"] == [3]
    assert json.loads((tmp_path / "state.json").read_text()) == {"id": "first", "last_step": 3}


def test_a_tracker_that_fails_warns_once_and_what_it_lacks_is_counted(tmp_path: Path):
    warnings: list[str] = []
    fault = lambda method: fail(method) if method == "log" else None  # noqa: E731
    thread = TrackerThread(RecordingTracker(fault), tracked(tmp_path), warnings.append)
    for step in range(5):
        thread.log(step, {})
    thread.finish("finished")
    assert len(warnings) == 2
    assert warnings[0].startswith("the tracker recording fails (ConnectionError: no route to host)")
    assert warnings[1].startswith("the tracker recording lacks 5 of 6 records")


def test_a_tracker_that_cannot_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tracker_thread, "RETRY_SECONDS", 0.0)
    attempts, warnings = list[str](), list[str]()

    def fault(method: str) -> None:
        attempts.append(method)
        if attempts.count("start") < 3:
            fail(method)

    tracker = RecordingTracker(fault)
    thread = TrackerThread(tracker, tracked(tmp_path), warnings.append)
    for step in range(4):
        thread.log(step, {})
    thread.finish("finished")
    assert [event[:2] for event in tracker.events] == [
        ("start", ""),
        ("log", 2),
        ("log", 3),
        ("finish", "finished"),
    ]
    assert len(warnings) == 2 and "lacks 2 of 5 records" in warnings[1]


def test_a_tracker_that_hangs_slows_nothing_and_is_left_behind(tmp_path: Path):
    released, warnings = threading.Event(), list[str]()

    def wait(method: str) -> None:
        released.wait(60)

    tracker = RecordingTracker(wait)
    thread = TrackerThread(
        tracker, tracked(tmp_path), warnings.append, max_pending=3, close_seconds=0.2
    )
    begun = time.monotonic()
    for step in range(500):
        thread.log(step, {})
    thread.finish("finished")
    assert time.monotonic() - begun < 5
    released.set()
    assert "more than 3 records wait for it" in warnings[0]
    lacking = int(warnings[1].split(" lacks ")[1].split(" of ")[0])
    assert lacking >= 495 and len(warnings) == 2


def test_the_config_is_flat_and_the_end_of_the_run_has_a_name():
    data = {
        "class": "m:Experiment",
        "fields": {
            "seed": 3,
            "players": ["a", "b"],
            "phases": {"dict": {"rl": {"class": "m:Phase", "fields": {"steps": 5}}}},
            "loss": {"function": "m:f"},
            "empty": {"dict": {}},
        },
    }
    assert dict(flat_fields(data)) == {
        "seed": 3,
        "players.0": "a",
        "players.1": "b",
        "phases.rl": "m:Phase",
        "phases.rl.steps": 5,
        "loss": "m:f",
    }
    errors = (None, Interrupted, KeyboardInterrupt, UserError)
    assert list(map(run_status, errors)) == ["finished", "interrupted", "interrupted", "failed"]


def test_unknown_and_missing_trackers_are_refused_at_the_start():
    with pytest.raises(UserError, match="takes each of mlflow, trackio, wandb once, not 'wandbx'"):
        make_trackers(["wandbx"])
    assert make_trackers([]) == []
    for name in ("wandb", "mlflow", "trackio"):
        if find_spec(name) is None:
            with pytest.raises(UserError, match=rf"pip install 'agentrl_jax\[{name}\]'"):
                make_trackers([name])
            break


def play(tracker: Tracker, folder: Path, steps: range, status: Status) -> None:
    """One process's part of a run."""
    thread = TrackerThread(tracker, tracked(folder), pytest.fail)
    for step in steps:
        thread.log(step, {"loss": 1.0 / (step + 1), "RL (rival)/return": float(step)})
    artifact = folder / "summary.json"
    if status == "finished":
        artifact.write_text("{}")
        thread.put(lambda tracker: tracker.summary({"GRPO/mean_return": 1.5}))
        thread.put(lambda tracker: tracker.artifact(artifact))
    thread.finish(status)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # its own, of SQLAlchemy
def test_mlflow_has_the_whole_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow", reason="MLflow is not installed: make test-extras does it")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    play(MlflowTracker(), tmp_path, range(3), "interrupted")
    play(MlflowTracker(), tmp_path, range(2, 5), "finished")
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    client = MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("wordle").experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "mine")
    assert run.data.params == {"seed": "3"}
    points = client.get_metric_history(run.info.run_id, valid_name("RL (rival)/return"))
    assert [(point.step, point.value) for point in points] == [(n, float(n)) for n in range(5)]
    assert run.data.metrics["summary/GRPO/mean_return"] == 1.5
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["summary.json"]


@pytest.mark.slow
def test_wandb_offline_writes_the_run_and_resumes_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("wandb", reason="Weights & Biases is not installed: make test-extras")
    monkeypatch.setenv("WANDB_MODE", "offline")
    play(WandbTracker(), tmp_path, range(3), "interrupted")
    play(WandbTracker(), tmp_path, range(2, 5), "finished")
    id = json.loads((tmp_path / "state.json").read_text())["id"]
    folders = [path for path in (tmp_path / "wandb").glob("offline-run-*") if path.is_dir()]
    assert folders and all(path.name.endswith(id) for path in folders)


@pytest.mark.slow
def test_trackio_has_the_whole_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("trackio", reason="Trackio is not installed: make test-extras does it")
    from trackio import sqlite_storage, utils  # pyright: ignore[reportMissingImports]

    for module in (sqlite_storage, utils):
        monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    play(TrackioTracker(), tmp_path, range(3), "interrupted")
    play(TrackioTracker(), tmp_path, range(2, 5), "finished")
    logs = sqlite_storage.SQLiteStorage.get_logs("wordle", "mine")
    assert [line["step"] for line in logs if "loss" in line] == [0, 1, 2, 3, 4]
