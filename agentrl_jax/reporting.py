"""`Reporter`: what a run says while it trains, on the terminal and in its folder."""

import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from agentrl_jax import journal
from agentrl_jax.errors import UserError
from agentrl_jax.statistics import Summary
from agentrl_jax.trajectories import Group

RECORDS = ("metrics.jsonl", "trajectories*.jsonl")  # the trajectories of process 3, as it wrote them: trajectories.3.jsonl
PLAIN_SECONDS = 10.0  # between two lines where there is no terminal
WINDOW = 10  # steps that the live numbers are means of


class Reporter:
    """Writes metrics.jsonl, trajectories.jsonl and TensorBoard events into `run_dir`, and a live line on the terminal.

    Whatever depends on the clock has a name that starts with `time/`: two equal runs have equal lines without it. Without a
    terminal the live line is a plain line about every ten seconds. Raises UserError where the folder cannot be written.
    """

    def __init__(self, run_dir: Path, quiet: bool = False) -> None:
        self._run_dir, self._quiet = run_dir, quiet
        self._terminal = sys.stdout.isatty()
        self._console = Console(quiet=quiet, highlight=False, width=None if self._terminal else 100)
        self._tensorboard: Any = None
        self._live: Live | None = None
        with self._writing():
            run_dir.mkdir(parents=True, exist_ok=True)
            for path in self._records():
                journal.mend(path)
            self._metrics = open(run_dir / "metrics.jsonl", "a", encoding="ascii")  # noqa: SIM115
        self._steps = sum(1 for _ in journal.lines_of(run_dir / "metrics.jsonl"))  # over all phases: TensorBoard's step

    def rewind(self, phase_order: Sequence[str], phase: str, step: int) -> None:
        """Forget what was recorded of `phase` at `step` and later, and of the phases after it; unknown phases stay."""
        now = phase_order.index(phase)
        later = set(phase_order[now + 1 :])

        def keep(line: dict[str, Any]) -> bool:
            return line["phase"] not in later and (line["phase"] != phase or line["step"] < step)

        self._close_files()
        with self._writing():
            for path in self._records():
                journal.truncate(path, keep)
            self._metrics = open(self._run_dir / "metrics.jsonl", "a", encoding="ascii")  # noqa: SIM115
        self._steps = sum(1 for _ in journal.lines_of(self._run_dir / "metrics.jsonl"))

    def begin(self, phase: str, total: int, done: int) -> None:
        """Start the live line of a phase of `total` steps, `done` of which were taken before."""
        self._stop()
        self._live = Live(phase, total, done, self._console, self._terminal and not self._quiet)

    def step(self, phase: str, step: int, metrics: Mapping[str, Any], seconds: float) -> None:
        """Record one step; metrics that are not finite are written as null."""
        numbers = {name: _number(value) for name, value in metrics.items()}
        with self._writing():
            line = {"phase": phase, "step": step, "time/seconds": _number(seconds), **numbers}
            self._metrics.write(journal.dumps(line, "a step") + "\n")
            self._metrics.flush()
            writer = self._writer()
            for name, value in {"time/seconds": seconds, **numbers}.items():
                if value is not None:
                    writer.add_scalar(name, value, self._steps)
        self._steps += 1
        if self._live is not None:
            self._live.step(numbers, seconds)

    def end(self, phase: str) -> None:
        """Close the live line and leave one plain line about the phase."""
        if self._live is not None and self._live.phase == phase:
            self._stop()

    def trajectories(self, phase: str, step: int, groups: Sequence[Group]) -> None:
        """Append the groups' trajectories to trajectories.jsonl."""
        journal.write(self._run_dir / "trajectories.jsonl", [t for group in groups for t in group.trajectories], step, phase)

    def say(self, text: str) -> None:
        """One status line."""
        self._console.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """A line about what goes wrong in this process."""
        self.say(text)

    def table(
        self, summaries: Sequence[Summary], difference: tuple[float, float] | None = None, names: tuple[str, str] = ("GRPO", "SFT")
    ) -> None:
        """The evaluation; `difference` is the paired difference of the mean returns of `names`, and its half-width."""
        self._console.print(table_of(summaries, self._console))
        if difference is not None:
            self.say(spelled(difference_sentence(difference, names), self._console))

    def _records(self) -> list[Path]:
        return [path for name in RECORDS for path in sorted(self._run_dir.glob(name))]

    def close(self) -> None:
        """Leave the terminal as it was and close every file; safe to call twice."""
        self._stop()
        self._close_files()

    def _close_files(self) -> None:
        self._metrics.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
            self._tensorboard = None

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _writer(self) -> Any:
        if self._tensorboard is None:
            from tensorboardX import SummaryWriter

            # TensorBoard hides what older event files say of this step and later: what a rewind took back.
            folder = str(self._run_dir / "tensorboard")
            self._tensorboard = SummaryWriter(folder, purge_step=self._steps, filename_suffix=f".{self._steps}")
        return self._tensorboard

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UserError(f"cannot write the run folder {self._run_dir} ({reason}): choose another folder or free its disk") from error


class Follower:
    """The reporter of a process other than the first: writes its trajectories, and says what goes wrong; all else is said once."""

    def __init__(self, run_dir: Path, quiet: bool, process: int) -> None:
        self._path, self._process = run_dir / f"trajectories.{process}.jsonl", process
        self._console = Console(quiet=quiet, highlight=False, stderr=True)

    def trajectories(self, phase: str, step: int, groups: Sequence[Group]) -> None:
        journal.write(self._path, [t for group in groups for t in group.trajectories], step, phase)

    def warn(self, text: str) -> None:
        self._console.print(f"process {self._process}: {text}", markup=False, soft_wrap=True)

    def say(self, text: str) -> None: ...

    def rewind(self, phase_order: Sequence[str], phase: str, step: int) -> None: ...

    def begin(self, phase: str, total: int, done: int) -> None: ...

    def step(self, phase: str, step: int, metrics: Mapping[str, Any], seconds: float) -> None: ...

    def end(self, phase: str) -> None: ...

    def table(
        self, summaries: Sequence[Summary], difference: tuple[float, float] | None = None, names: tuple[str, str] = ("GRPO", "SFT")
    ) -> None: ...

    def close(self) -> None: ...


class Live:
    """The progress of one phase: a bar on a terminal, else a line now and then."""

    def __init__(self, phase: str, total: int, done: int, console: Console, terminal: bool) -> None:
        self.phase = phase
        self._total, self._done, self._console = total, done, console
        self._start, self._first, self._spoken = time.monotonic(), done, -math.inf
        self._recent: deque[tuple[Mapping[str, Any], float]] = deque(maxlen=WINDOW)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if terminal:
            words = [TextColumn(text) for text in ("{task.description}", "{task.completed}/{task.total}", "{task.fields[state]}")]
            bar = Progress(words[0], BarColumn(), *words[1:], console=console, refresh_per_second=4)
            self._task = bar.add_task(phase, total=total, completed=done, state="")
            bar.start()
            self._bar = bar

    def step(self, metrics: Mapping[str, Any], seconds: float) -> None:
        self._done += 1
        self._recent.append((metrics, seconds))
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, state=self._state())
        elif time.monotonic() - self._spoken >= PLAIN_SECONDS:
            self._spoken = time.monotonic()
            self._print(f"{self.phase} {self._done}/{self._total}  {self._state()}")

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, visible=False)
            self._bar.stop()
        took = _clock(time.monotonic() - self._start)
        self._print(f"{self.phase} {self._done}/{self._total}  {self._done - self._first} steps in {took}  {self._numbers()}".rstrip())

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def _state(self) -> str:
        seconds = sum(s for _, s in self._recent) / len(self._recent)
        return f"{self._numbers()}  {_clock(seconds * (self._total - self._done))} left"

    def _numbers(self) -> str:
        """Tokens per second, and the mean return or else the loss, over the last steps."""
        parts = []
        seconds, tokens = sum(s for _, s in self._recent), sum(m.get("tokens") or 0 for m, _ in self._recent)
        if tokens and seconds:
            parts.append(f"{tokens / seconds:,.0f} tokens/s")
        for name, label in (("rollout/return", "return"), ("loss", "loss")):
            values = [value for m, _ in self._recent if (value := m.get(name)) is not None]
            if values:
                parts.append(f"{label} {sum(values) / len(values):.3f}")
                break
        return "  ".join(parts)


def spelled(text: str, console: Console) -> str:
    """The text in characters that the terminal has."""
    return text if console.encoding.startswith("utf") else text.replace("±", "+-")


def table_of(summaries: Sequence[Summary], console: Console) -> Table:
    """The evaluation, a line a player."""
    table = Table(title="Evaluation (intervals are at 95 %)", title_justify="left")
    table.add_column("player")
    for column in ("episodes", "mean return", "win rate", "turns", "score"):
        table.add_column(column, justify="right", no_wrap=True)
    for s in summaries:
        numbers = (_mean(s.mean_return, s.interval), _win_rate(s), _text(s.mean_turns, 1), _text(s.score, 1))
        table.add_row(Text(s.name), str(s.episodes), *(spelled(number, console) for number in numbers))
    return table


def difference_sentence(difference: tuple[float, float], names: tuple[str, str]) -> str:
    """What a paired difference (mean, half-width) of two players says, in one sentence."""
    mean, half = difference
    better, worse = names
    if abs(mean) > half:
        verdict = f"{better} is {'better' if mean > 0 else 'worse'} than {worse}"
    else:
        verdict = f"these episodes cannot tell {better} from {worse}"
    return f"{better} - {worse}, same seeds: mean return {mean:+.2f} ± {half:.2f} (95 %), so {verdict}."


def _mean(mean: float, half: float) -> str:
    return f"{mean:.2f} ± {half:.2f}" if math.isfinite(half) else _text(mean)


def _number(x: Any) -> float | int | None:
    value = x if isinstance(x, int) else float(x)
    return value if math.isfinite(value) else None


def _text(x: float | None, digits: int = 2) -> str:
    return "-" if x is None or not math.isfinite(x) else f"{x:.{digits}f}"


def _win_rate(s: Summary) -> str:
    if s.win_rate is None or s.win_interval is None:
        return "-"
    low, high = s.win_interval
    return f"{100 * s.win_rate:.0f} % ({100 * low:.0f}-{100 * high:.0f})"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
