"""`LiveDisplay`: the dashboard on a terminal, redrawn by a thread of its own."""

import threading
import time
from collections import deque
from collections.abc import Callable

from rich.console import Console
from rich.live import Live
from rich.text import Text

from agentrl_jax.reporting.dashboard import View, draw
from agentrl_jax.reporting.live_status import LiveStatus
from agentrl_jax.reporting.phase_progress import PhaseProgress

INTERVAL = 0.5  # seconds between two drawings
RATE_SECONDS = 20.0  # over which episodes per second are measured
MAX_WARNINGS = 3  # that are shown
CLOSE_SECONDS = 2.0  # for which a terminal that takes no output is waited for
StatusSource = Callable[[], LiveStatus]


class LiveDisplay:
    """Draws the dashboard below the lines that are printed meanwhile, and removes it at the end.

    The thread reads what others leave for it: nothing that it does, and no terminal that takes no
    output, makes a step wait. The cursor stays visible and the screen is the normal one, so that
    nothing has to be restored after a kill. What fails ends the display, with a line, and not the
    run.
    """

    def __init__(
        self,
        console: Console,
        progress: PhaseProgress,
        status: StatusSource,
        on_failure: Callable[[str], None],
        interval: float = INTERVAL,
    ) -> None:
        """Start the thread.

        Args:
            console: of the terminal.
            progress: of the phase.
            status: called for each drawing, in the thread.
            on_failure: called with a line where the display ends by an error.
            interval: seconds between two drawings.
        """
        self._console, self._progress, self._status = console, progress, status
        self._on_failure, self._interval = on_failure, interval
        self._pending: deque[Text] = deque()  # lines to print above the dashboard
        self._lines: deque[Text] = deque(maxlen=100)  # that were printed
        self._warnings: tuple[str, ...] = ()
        self._num_warnings = 0
        self._episodes: deque[tuple[float, int]] = deque()
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)
        self._thread.start()

    def print(self, line: Text) -> None:
        """Print a line above the dashboard, soon."""
        self._pending.append(line)
        self._wake.set()

    def warn(self, text: str) -> None:
        """Show a warning in the dashboard."""
        self._num_warnings += 1
        self._warnings = (*self._warnings[1 - MAX_WARNINGS :], text)

    def stop(self) -> None:
        """Print what is left, and remove the dashboard; may be called twice."""
        self._stopped.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        live = Live(
            console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop"
        )
        try:
            self._draw_until_stopped(live)
        except Exception as error:
            self._on_failure(
                f"the dashboard ends ({type(error).__name__}: {error}); the run goes on"
            )
        finally:
            self._end(live)

    def _end(self, live: Live) -> None:
        try:
            self._print_pending()
            live.stop()
        except Exception:  # the terminal is gone
            self._console.clear_live()

    def _print_pending(self) -> None:
        while self._pending:
            line = self._pending.popleft()
            self._lines.append(line)
            self._console.print(line, soft_wrap=True)

    def _draw_until_stopped(self, live: Live) -> None:
        size, last_draw = self._console.size, 0.0
        self._begin(live)
        while not self._stopped.is_set():
            self._wake.wait(self._interval)
            self._wake.clear()
            self._print_pending()
            if self._console.size != size:
                size, last_draw = self._console.size, 0.0
                self._redraw_screen(live, size.height)
            if time.monotonic() - last_draw >= self._interval:
                live.update(draw(self._view(), size.width, size.height - 1), refresh=True)
                last_draw = time.monotonic()

    def _begin(self, live: Live) -> None:
        live.start()
        self._console.show_cursor(True)

    def _redraw_screen(self, live: Live, height: int) -> None:
        """After a change of its size a terminal has wrapped what was drawn: begin anew, with the
        newest lines.
        """
        live.stop()
        self._console.clear()
        for line in list(self._lines)[-height:]:
            self._console.print(line, soft_wrap=True)
        self._begin(live)

    def _view(self) -> View:
        status = self._status()
        return View(
            self._progress,
            status,
            self._episode_rate(status.episodes),
            self._warnings,
            self._num_warnings,
            self._console.encoding,
        )

    def _episode_rate(self, episodes: int) -> float | None:
        now = time.monotonic()
        self._episodes.append((now, episodes))
        while now - self._episodes[0][0] > RATE_SECONDS:
            self._episodes.popleft()
        start, before = self._episodes[0]
        return (episodes - before) / (now - start) if now - start >= 1 and episodes else None
