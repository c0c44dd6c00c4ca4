"""`ProgressLine`: the progress of a phase on the terminal."""

import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from agentrl_jax.reporting.statistics import REWARD_PART

LINE_INTERVAL = 10.0  # seconds between two lines where there is no terminal
WINDOW = 10  # steps over which the displayed numbers are averaged


class ProgressLine:
    """A bar on a terminal, else a line every `LINE_INTERVAL` seconds."""

    def __init__(
        self, phase: str, total: int, completed: int, console: Console, terminal: bool
    ) -> None:
        self.phase = phase
        self._total, self._completed, self._console = total, completed, console
        self._start_time, self._initial_completed = time.monotonic(), completed
        self._last_print = -math.inf
        self._recent_steps: deque[tuple[Mapping[str, Any], float]] = deque(maxlen=WINDOW)
        self._bar: Progress | None = None
        self._task = TaskID(0)
        if terminal:
            bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[state]}"),
                console=console,
                refresh_per_second=4,
            )
            self._task = bar.add_task(phase, total=total, completed=completed, state="")
            bar.start()
            self._bar = bar

    def step(self, metrics: Mapping[str, Any], seconds: float) -> None:
        self._completed += 1
        self._recent_steps.append((metrics, seconds))
        if self._bar is not None:
            self._bar.update(self._task, completed=self._completed, state=self._status())
        elif time.monotonic() - self._last_print >= LINE_INTERVAL:
            self._last_print = time.monotonic()
            self._print(f"{self.phase} {self._completed}/{self._total}  {self._status()}")

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, visible=False)
            self._bar.stop()
        elapsed = _format_duration(time.monotonic() - self._start_time)
        steps = self._completed - self._initial_completed
        progress = f"{self.phase} {self._completed}/{self._total}"
        self._print(f"{progress}  {steps} steps in {elapsed}  {self._averages()}".rstrip())

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def _status(self) -> str:
        seconds = sum(s for _, s in self._recent_steps) / len(self._recent_steps)
        remaining = _format_duration(seconds * (self._total - self._completed))
        return f"{self._averages()}  {remaining} left"

    def _averages(self) -> str:
        """Tokens per second, and the mean return with its named parts or else the loss, of the last
        steps.
        """
        parts = []
        seconds = sum(s for _, s in self._recent_steps)
        tokens = sum(m.get("tokens") or 0 for m, _ in self._recent_steps)
        if tokens and seconds:
            parts.append(f"{tokens / seconds:,.0f} tokens/s")
        for name, label in (("rollout/return", "return"), ("loss", "loss")):
            values = [value for m, _ in self._recent_steps if (value := m.get(name)) is not None]
            if values:
                parts.append(f"{label} {sum(values) / len(values):.3f}")
                break
        newest, _ = self._recent_steps[-1] if self._recent_steps else ({}, 0.0)
        rewards = [name for name in newest if name.startswith(REWARD_PART)]
        for name in rewards if len(rewards) > 1 else ():
            values = [m[name] for m, _ in self._recent_steps if name in m]
            parts.append(f"{name.removeprefix(REWARD_PART)} {sum(values) / len(values):.3f}")
        return "  ".join(parts)


def _format_duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
