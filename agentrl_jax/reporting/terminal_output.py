"""`TerminalOutput`: what a run prints: lines, the progress of phases, the evaluation table."""

import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from agentrl_jax.reporting.evaluation_table import (
    difference_sentence,
    encodable_text,
    evaluation_table,
)
from agentrl_jax.reporting.live_display import LiveDisplay
from agentrl_jax.reporting.live_status import LiveStatus
from agentrl_jax.reporting.phase_progress import PhaseProgress
from agentrl_jax.reporting.plain_text import plain_text
from agentrl_jax.reporting.progress_line import ProgressLine, last_line
from agentrl_jax.reporting.statistics import EvaluationSummary

PLAIN_WIDTH = 100  # columns of a table where stdout is no terminal


class TerminalOutput:
    """A dashboard below the printed lines where stdout is a terminal, else plain lines; quiet: only
    warnings, on stderr, and the evaluation table.

    Whatever a text contains, it is printed as it is: no markup, no control sequence.
    """

    def __init__(self, quiet: bool) -> None:
        is_terminal = sys.stdout.isatty()
        self._quiet = quiet
        self._console = Console(highlight=False, width=None if is_terminal else PLAIN_WIDTH)
        self._has_dashboard = is_terminal and not quiet and not self._console.is_dumb_terminal
        self._progress: PhaseProgress | None = None
        self._progress_line: ProgressLine | None = None
        self._display: LiveDisplay | None = None

    def begin(self, progress: PhaseProgress, status: Callable[[], LiveStatus]) -> None:
        """Show the progress of a phase from now on; the dashboard calls `status`."""
        self.stop()
        self._progress = progress
        if self._has_dashboard:
            self._display = LiveDisplay(self._console, progress, status, self._end_dashboard)
        else:
            self._progress_line = ProgressLine(progress, self.log)

    def update(self) -> None:
        """A step has ended."""
        if self._progress_line is not None:
            self._progress_line.update()

    def stop(self) -> None:
        """End the display of a phase, with a last line about it; may be called twice."""
        if self._display is not None:
            self._display.stop()
        progress, self._progress = self._progress, None
        self._display = self._progress_line = None
        if progress is not None:
            self.log(last_line(progress))

    def _end_dashboard(self, reason: str) -> None:
        """Go on with plain lines; in the thread of the dashboard."""
        self._has_dashboard, self._display = False, None
        if self._progress is not None:
            self._progress_line = ProgressLine(self._progress, self.log)
        self.warn(reason)

    def log(self, text: str) -> None:
        """One status line."""
        if not self._quiet:
            self._print(text)

    def warn(self, text: str) -> None:
        """A line about a failure."""
        if self._quiet:
            print_line(Console(highlight=False, stderr=True), text)
            return
        if self._display is not None:
            self._display.warn(text)
        self._print(text)

    def _print(self, text: str) -> None:
        if self._display is not None:
            self._display.print(Text(plain_text(text, self._console.encoding)))
        else:
            print_line(self._console, text)

    def table(
        self,
        summaries: Sequence[EvaluationSummary],
        difference: tuple[float, float] | None,
        names: tuple[str, str],
    ) -> None:
        """See `Reporter.table`."""
        if not any(summary.episodes for summary in summaries):
            self.log("no episode was evaluated")
            return
        self._console.print(evaluation_table(summaries, self._console))
        if difference is not None:
            self._print(encodable_text(difference_sentence(difference, names), self._console))


def print_line(console: Console, text: str) -> None:
    """Print a line as it is, whatever it may contain."""
    console.print(Text(plain_text(text, console.encoding)), soft_wrap=True)
