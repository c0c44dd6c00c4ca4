"""`Reporter`: the terminal output of a run, and the metrics and trajectories in its folder."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agentrl_jax.errors import UserError
from agentrl_jax.reporting.dependencies import require_package
from agentrl_jax.reporting.live_display import StatusSource
from agentrl_jax.reporting.live_status import LiveStatus
from agentrl_jax.reporting.phase_progress import PhaseProgress
from agentrl_jax.reporting.statistics import EvaluationSummary
from agentrl_jax.reporting.terminal_output import TerminalOutput, print_line
from agentrl_jax.reporting.tracker_thread import TrackerGroup
from agentrl_jax.storage import jsonl, trajectory_log
from agentrl_jax.storage.damaged_lines import DamagedLines, Reaction, num_damaged
from agentrl_jax.storage.line_counter import LineCounter
from agentrl_jax.storage.segments import segment_paths, without_trimmed
from agentrl_jax.storage.trajectory_recorder import TrajectoryRecorder

METRICS = "metrics.jsonl"
MAX_BYTES = 2 * 2**30  # of a process's trajectories


class Reporter:
    """Writes metrics.jsonl, TensorBoard events and the folder trajectories/ into `run_dir`, and the
    progress of phases on the terminal: a dashboard, or a plain line every ten seconds where stdout
    is no terminal.

    The names of metrics that depend on the clock start with `time/` or `mfu/`: two equal runs have
    equal lines without them.
    """

    def __init__(
        self,
        run_dir: Path,
        quiet: bool = False,
        max_bytes: int = MAX_BYTES,
        damaged_records: Reaction = "stop",
    ) -> None:
        """Open the files of a run.

        Args:
            run_dir: is created.
            quiet: print warnings alone, on stderr, and the evaluation table.
            max_bytes: of this process's trajectories.
            damaged_records: what follows where lines of earlier steps are damaged or missing.

        Raises:
            UserError: the folder cannot be written, or a package of the `report` extra is missing.
        """
        for package in ("matplotlib", "tensorboardX"):  # before a long run, not at its end
            require_package(package)
        self._run_dir = run_dir
        self._terminal = TerminalOutput(quiet)
        self._tensorboard: Any = None
        self._progress: PhaseProgress | None = None
        self.status: StatusSource = LiveStatus  # what the dashboard shows of the rollouts
        self.trackers = TrackerGroup()
        self._damaged_lines = DamagedLines(damaged_records, self.log)
        self._line_counter = LineCounter(run_dir / METRICS)
        self.recorder = TrajectoryRecorder(run_dir, 0, max_bytes, self.log)
        with self._report_write_errors():
            run_dir.mkdir(parents=True, exist_ok=True)
            for path in self._log_paths():
                self._damaged_lines.repair(path)
            (run_dir / METRICS).touch()
            self._total_steps = self._count_steps()  # over all phases: TensorBoard's step
            self._metrics_file = open(run_dir / METRICS, "a", encoding="ascii")  # noqa: SIM115

    def rewind(
        self,
        phase_order: Sequence[str],
        phase: str,
        step: int,
        expected_lines: Mapping[str, int] | None = None,
    ) -> None:
        """Delete the records of `phase` from `step` on, and of the phases after it; those of
        unknown phases stay.

        Args:
            phase_order: the phase and those after it.
            phase: that goes on.
            step: that is its next.
            expected_lines: how many lines each file had at the checkpoint of the step.

        Raises:
            UserError: a line is damaged, or some are missing.
        """
        later = set(phase_order[phase_order.index(phase) + 1 :])

        def is_before(line: dict[str, Any]) -> bool:
            return line["phase"] not in later and (line["phase"] != phase or line["step"] < step)

        self._close_files()
        self.recorder.reopen()
        with self._report_write_errors():
            for path in self._log_paths():
                jsonl.filter_lines(path, is_before, self._damaged_lines.add)
            self._line_counter = LineCounter(self._run_dir / METRICS)
            self._metrics_file = open(self._run_dir / METRICS, "a", encoding="ascii")  # noqa: SIM115
        self._total_steps = self._count_steps()
        expected_lines = without_trimmed(
            self._run_dir / trajectory_log.FOLDER, expected_lines or {}
        )
        self._damaged_lines.check_counts(self._run_dir, expected_lines, step)

    def sync(self) -> dict[str, int]:
        """Bring metrics and trajectories to the disk; returns how many lines each file has."""
        with self._report_write_errors():
            num_lines = self._line_counter.sync() + num_damaged(self._run_dir / METRICS)
            return {METRICS: num_lines, **self.recorder.sync()}

    def _count_steps(self) -> int:
        path = self._run_dir / METRICS
        lines = jsonl.read_lines(path, self._damaged_lines.add)
        return sum(1 for _ in lines) + num_damaged(path)

    def begin(self, phase: str, total: int, completed: int, title: str = "") -> None:
        """Show the progress of a phase from now on.

        Args:
            phase: its name.
            total: its steps.
            completed: steps before.
            title: of the run and the phase.
        """
        self._progress = PhaseProgress(phase, total, completed, title)
        self._terminal.begin(self._progress, lambda: self.status())

    def activity(self, name: str) -> None:
        """What the trainer does from now on, for the dashboard."""
        if self._progress is not None:
            self._progress.begin(name)

    def step(self, phase: str, step: int, metrics: Mapping[str, Any], seconds: float) -> None:
        """Record one step; non-finite metrics are written as null."""
        numbers = {name: _finite_or_none(value) for name, value in metrics.items()}
        with self._report_write_errors():
            line = {
                "phase": phase,
                "step": step,
                "time/seconds": _finite_or_none(seconds),
                **numbers,
            }
            self._metrics_file.write(jsonl.record_line(line, "a step"))
            self._metrics_file.flush()
            writer = self._tensorboard_writer()
            for name, value in {"time/seconds": seconds, **numbers}.items():
                if value is not None:
                    writer.add_scalar(name, value, self._total_steps)
        recorded = {"time/seconds": seconds, **numbers}
        self.trackers.log(
            self._total_steps, {name: x for name, x in recorded.items() if x is not None}
        )
        self._total_steps += 1
        if self._progress is not None:
            self._progress.step(numbers, seconds)
            self._terminal.update()

    def end(self, phase: str) -> None:
        """Replace the progress of the phase by a last line about it."""
        if self._progress is not None and self._progress.phase == phase:
            self._progress = None
            self._terminal.stop()

    def log(self, text: str) -> None:
        """One status line."""
        self._terminal.log(text)

    def warn(self, text: str) -> None:
        """A line about a failure in this process."""
        self._terminal.warn(text)

    def table(
        self,
        summaries: Sequence[EvaluationSummary],
        difference: tuple[float, float] | None = None,
        names: tuple[str, str] = ("GRPO", "SFT"),
    ) -> None:
        """Print the evaluation.

        Args:
            summaries: a row each.
            difference: the paired difference of the mean returns of `names`, and its half-width.
            names: the better and the worse phase, if the difference is positive.
        """
        self._terminal.table(summaries, difference, names)

    def _log_paths(self) -> list[Path]:
        metrics = self._run_dir / METRICS
        segments = segment_paths(self._run_dir / trajectory_log.FOLDER)  # of all processes
        return [*([metrics] if metrics.exists() else []), *segments]

    def close(self) -> None:
        """Restore the terminal and close all files; may be called twice."""
        self._terminal.stop()
        self.trackers.finish("failed")  # unless the run has said otherwise
        self.recorder.close()
        self._close_files()

    def _close_files(self) -> None:
        self._metrics_file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
            self._tensorboard = None

    def _tensorboard_writer(self) -> Any:
        if self._tensorboard is None:
            from tensorboardX import SummaryWriter

            # TensorBoard hides the events of older files from this step on, which a rewind deleted.
            folder = str(self._run_dir / "tensorboard")
            self._tensorboard = SummaryWriter(
                folder, purge_step=self._total_steps, filename_suffix=f".{self._total_steps}"
            )
        return self._tensorboard

    @contextlib.contextmanager
    def _report_write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UserError(
                f"cannot write the run folder {self._run_dir} ({reason}): "
                "choose another folder or free its disk"
            ) from error


class SilentReporter:
    """The reporter of a process that is not the coordinator: it writes the process's trajectories
    and prints its warnings; all else the coordinator reports.
    """

    def __init__(self, run_dir: Path, process: int, max_bytes: int = MAX_BYTES) -> None:
        self._process = process
        self.recorder = TrajectoryRecorder(run_dir, process, max_bytes, self.warn)
        self.trackers = TrackerGroup()
        self._console = Console(highlight=False, stderr=True)
        self.status: StatusSource = LiveStatus

    def sync(self) -> dict[str, int]:
        return self.recorder.sync()

    def warn(self, text: str) -> None:
        print_line(self._console, f"process {self._process}: {text}")

    def log(self, text: str) -> None: ...

    def rewind(
        self,
        phase_order: Sequence[str],
        phase: str,
        step: int,
        expected_lines: Mapping[str, int] | None = None,
    ) -> None:
        self.recorder.reopen()

    def begin(self, phase: str, total: int, completed: int, title: str = "") -> None: ...

    def activity(self, name: str) -> None: ...

    def step(self, phase: str, step: int, metrics: Mapping[str, Any], seconds: float) -> None: ...

    def end(self, phase: str) -> None: ...

    def table(
        self,
        summaries: Sequence[EvaluationSummary],
        difference: tuple[float, float] | None = None,
        names: tuple[str, str] = ("GRPO", "SFT"),
    ) -> None: ...

    def close(self) -> None:
        self.recorder.close()


def open_reporter(
    run_dir: Path, quiet: bool, process: int, max_bytes: int, damaged_records: Reaction = "stop"
) -> Reporter | SilentReporter:
    """The reporter of a process; process 0 is the coordinator."""
    if process == 0:
        return Reporter(run_dir, quiet, max_bytes, damaged_records)
    return SilentReporter(run_dir, process, max_bytes)


def _finite_or_none(x: Any) -> float | int | None:
    value = x if isinstance(x, int) else float(x)
    return value if math.isfinite(value) else None
