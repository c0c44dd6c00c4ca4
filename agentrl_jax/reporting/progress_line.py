"""`ProgressLine`: the progress of a phase as plain lines."""

import math
import time
from collections.abc import Callable

from agentrl_jax.reporting.phase_progress import PhaseProgress, format_duration

LINE_INTERVAL = 10.0  # seconds between two lines


class ProgressLine:
    """A line at most every `LINE_INTERVAL` seconds, where there is no dashboard."""

    def __init__(self, progress: PhaseProgress, print_line: Callable[[str], None]) -> None:
        self._progress, self._print_line = progress, print_line
        self._last_print = -math.inf

    def update(self) -> None:
        """Print a line after a step, if it is time."""
        if time.monotonic() - self._last_print >= LINE_INTERVAL:
            self._last_print = time.monotonic()
            p = self._progress
            remaining = format_duration(p.seconds_left or 0.0)
            self._print_line(f"{p.phase} {p.completed}/{p.total}  {averages(p)}  {remaining} left")


def last_line(progress: PhaseProgress) -> str:
    """What is left on the terminal of a phase that is over."""
    p = progress
    elapsed = format_duration(time.monotonic() - p.start_time)
    steps = p.completed - p.initial_completed
    return f"{p.phase} {p.completed}/{p.total}  {steps} steps in {elapsed}  {averages(p)}".rstrip()


def averages(progress: PhaseProgress) -> str:
    """Tokens per second, and the mean return with its named parts or else the loss, of the last
    steps.
    """
    parts = []
    if progress.tokens_per_second:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    for name, label in (("rollout/return", "return"), ("loss", "loss")):
        value = progress.mean(name)
        if value is not None:
            parts.append(f"{label} {value:.3f}")
            break
    rewards = progress.reward_parts()
    if len(rewards) > 1:
        parts += [f"{name} {value:.3f}" for name, value in rewards.items()]
    return "  ".join(parts)
