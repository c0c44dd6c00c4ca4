"""The dashboard on a pseudo-terminal: what it shows, hostile texts, sizes, errors, Ctrl-C."""

import dataclasses
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len
from support.pseudo_terminal import PseudoTerminal, as_stdout, forbidden_controls, is_sane

from agentrl_jax.reporting import live_display
from agentrl_jax.reporting.dashboard import View, draw
from agentrl_jax.reporting.live_display import StatusSource
from agentrl_jax.reporting.live_status import EnvironmentTime, Excerpt, LiveStatus, Queue, Wait
from agentrl_jax.reporting.phase_progress import PhaseProgress
from agentrl_jax.reporting.plain_text import one_line, plain_text
from agentrl_jax.reporting.reporter import Reporter

HOSTILE = (
    "\x1b[31mred\x1b[0m \x1b[2J\x1b[?1049h \x1b]0;title\x07 \x9b31m [red]markup[/red] :smile: "
    "\x07\x08\r\n\u202ereversed\u202c zero\u200bwidth \ud800 日本語の文章 e\u0301 👩\u200d👧"
)
METRICS = {
    "tokens": 1000.0, "rollout/return": -1.5, "rollout/success": 0.25, "loss": 0.5,
    "time/collect_tokens_per_second": 5123.0, "time/tokens_per_second": 900.0,
    "trained_reward/win": 0.5, f"trained_reward/{HOSTILE}": 0.25,
    "time/memory_peak": 61.2, "time/memory_limit": 79.6, "mfu/update": 0.412,
}  # fmt: skip


def status(text: str = HOSTILE) -> LiveStatus:
    return LiveStatus(
        episodes=40,
        queues=[Queue("episodes of policy", "32 of 32, 96 wait"), Queue(text, text)],
        environments=[EnvironmentTime("slow", 0.5, 2.0), EnvironmentTime(text, 0.25, 1.0)],
        waits=[Wait(text, "its environment (worker 3)", 12.0)],
        excerpt=Excerpt(f"last episode: {text}", [("user", text), ("assistant", 9 * text)]),
    )


def view(steps: int = 12) -> View:
    progress = PhaseProgress("rl", 200, 0, "wordle: phase rl (2 of 2)")
    for _ in range(steps):
        progress.step(METRICS, 2.0)
    progress.begin("rollouts")
    return View(progress, status(), 4.25, [HOSTILE, "disk"], 5)


def texts(width: int, height: int, drawing: View | None = None) -> list[str]:
    lines = draw(drawing or view(), width, height).lines
    return ["".join(text for text, _ in line) for line in lines]


def test_it_shows_where_the_run_is():
    lines = texts(120, 60)
    page = "\n".join(lines)
    assert lines[0].startswith("wordle: phase rl (2 of 2)") and "2.00 s a step" in lines[0]
    assert "step 12/200" in lines[1] and "6 %, 6:16 left, rollouts for 0:00" in lines[1]
    for name, value in (
        ("sampled tokens/s", "5,123"), ("episodes/s", "4.25"), ("MFU of updates", "41.2 %"),
        ("device memory", "61.2 of 79.6 GiB"), ("return", "-1.500"), ("win", "0.500"),
        ("episodes of policy", "32 of 32, 96 wait"),
    ):  # fmt: skip
        (line,) = [line for line in lines if line.lstrip().startswith(name) or f"  {name} " in line]
        assert value in line
    assert "slow" in page and "0.500 s a step, at most 2.000 s" in page
    assert "waits 12 s for its environment (worker 3)" in page
    assert "warnings (3 older ones are above)" in page and lines[-1].startswith("disk")


@pytest.mark.parametrize("width", [20, 59, 60, 81, 120, 300])
@pytest.mark.parametrize("height", [1, 5, 14, 20, 23, 24, 60])
def test_it_fits_any_terminal_and_no_text_is_a_control_sequence(width: int, height: int):
    lines = texts(width, height)
    assert len(lines) <= height
    for line in lines:
        assert cell_len(line) <= width and not forbidden_controls(line)
        assert not set(line) & set("\u202e\u202c\u200b\u200d\ud800\n\r\t")


def test_a_phase_that_begins_has_no_numbers_yet():
    empty = View(PhaseProgress("sft", 100, 40), LiveStatus(), None, [], 0)
    lines = texts(100, 40, empty)
    assert "step 40/100" in lines[1] and "-:-- left, starting for 0:00" in lines[1]
    assert not any("last episode" in line for line in lines)


def test_text_is_plain_in_every_encoding():
    assert one_line("a\nb\tc\x1bd", 5) == "a↵b c…"
    assert plain_text("\x1b[1m[red] \n\t ä 日") == "␛[1m[red] \n\t ä 日"
    assert plain_text("ä 日 \x1b", "ascii") == "? ? ?"
    assert plain_text("\u202ea\u2066\ufe0f\x85") == "\ufffda\ufffd\ufffd\ufffd"
    ascii_view = dataclasses.replace(view(), encoding="ascii")
    assert all(line.isascii() or "…" in line for line in texts(100, 40, ascii_view))


@contextmanager
def reporting(monkeypatch: pytest.MonkeyPatch, run_dir: Path, status: StatusSource = status):
    """A reporter on a terminal of 100 columns and 40 lines, drawn 20 times a second."""
    monkeypatch.setattr(live_display.LiveDisplay.__init__, "__defaults__", (0.05,))
    with as_stdout(monkeypatch, 100, 40) as terminal:
        reporter = Reporter(run_dir)
        reporter.status = status
        try:
            yield terminal, reporter
        finally:
            reporter.close()


def test_hostile_texts_do_nothing_to_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with reporting(monkeypatch, tmp_path) as (terminal, reporter):
        reporter.begin("rl", 10, 0, "wordle: phase rl (1 of 1)")
        for step in range(3):
            reporter.step("rl", step, METRICS, 0.5)
            reporter.log(f"line {step} {HOSTILE}")
            reporter.warn(f"warning {step} {HOSTILE}")
            terminal.wait_for("step 3/10" if step == 2 else f"line {step}")
        print("from an environment in this process")
        terminal.wait_for("from an environment")
        terminal.wait_for("last episode", count=2)
        reporter.end("rl")
        output = terminal.wait_for("3 steps in")
        assert not forbidden_controls(output) and is_sane(output)
        assert "[red]markup[/red] :smile:" in output and "␛[31mred␛[0m" in output
        assert "last episode" not in output[output.rindex("rl 3/10") :]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3


def test_it_is_drawn_anew_for_another_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with reporting(monkeypatch, tmp_path) as (terminal, reporter):
        reporter.begin("rl", 10, 0)
        reporter.log("a line above")
        terminal.wait_for("slowest environments")
        for i, (columns, lines) in enumerate(((40, 10), (150, 50), (1, 1), (100, 30))):
            terminal.resize(columns, lines)
            terminal.wait_for("\x1b[2J", count=i + 1)
        terminal.wait_for("a line above", count=3)  # what was cleared is printed again
        terminal.wait_for("slowest environments", count=3)
        output = terminal.output
        assert not forbidden_controls(output) and is_sane(output)


def test_an_error_of_the_display_ends_it_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def fail() -> LiveStatus:
        raise RuntimeError("no status")

    with reporting(monkeypatch, tmp_path, fail) as (terminal, reporter):
        reporter.begin("rl", 10, 0)
        terminal.wait_for("the dashboard ends (RuntimeError: no status); the run goes on")
        reporter.step("rl", 0, METRICS, 0.5)
        terminal.wait_for("rl 1/10")
        reporter.begin("polish", 10, 0)
        reporter.step("polish", 0, METRICS, 0.5)
        terminal.wait_for("polish 1/10")
        assert is_sane(terminal.output)


def test_a_terminal_that_takes_no_output_makes_no_step_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """As after Ctrl-S."""
    with reporting(monkeypatch, tmp_path) as (terminal, reporter):
        terminal.pause()
        reporter.begin("rl", 1000, 0)
        time.sleep(0.5)  # the terminal takes nothing of it
        start = time.monotonic()
        for step in range(100):
            reporter.step("rl", step, METRICS, 0.5)
            reporter.activity("update")
            reporter.log("a step")
        assert time.monotonic() - start < 2.0
        assert "last episode" not in terminal.output
        terminal.resume()
        terminal.wait_for("last episode")
        terminal.wait_for("a step", count=100)


INTERRUPTED = """
import sys, time
from pathlib import Path
from agentrl_jax.reporting.reporter import Reporter
from agentrl_jax.training.stop_signal import StopSignal

reporter = Reporter(Path(sys.argv[1]))
try:
    with StopSignal() as stop:
        reporter.begin("rl", 1000, 0, "demo")
        for step in range(1000):
            time.sleep(0.05)
            reporter.step("rl", step, {"loss": 1.0}, 0.05)
            if sys.argv[2] == "error" and step == 5:
                raise ValueError("the step failed")
            if stop.is_set and sys.argv[2] == "once":
                reporter.log("stopped")
                break
finally:
    reporter.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "interrupts"), [("once", 1), ("twice", 2), ("error", 0)])
def test_the_terminal_is_sane_after_ctrl_c_and_after_errors(
    mode: str, interrupts: int, tmp_path: Path
):
    terminal = PseudoTerminal(90, 30)
    before = termios.tcgetattr(terminal.slave)
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path), mode],
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        start_new_session=True,
    )
    terminal.wait_for("step ", 60)
    for _ in range(interrupts):
        time.sleep(0.7)
        child.send_signal(signal.SIGINT)
    child.wait(30)
    output = terminal.wait_for("steps in")
    assert is_sane(output) and termios.tcgetattr(terminal.slave) == before
    expected = {"once": "stopped", "twice": "KeyboardInterrupt", "error": "the step failed"}[mode]
    assert expected in output and (child.returncode == 0) == (mode == "once")
    terminal.close()
