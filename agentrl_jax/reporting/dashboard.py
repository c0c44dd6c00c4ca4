"""The dashboard of a run as renderables of `rich`: a function of what there is to see."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentrl_jax.reporting.live_status import LiveStatus
from agentrl_jax.reporting.phase_progress import PhaseProgress, format_duration
from agentrl_jax.reporting.plain_text import one_line
from agentrl_jax.reporting.statistics import REWARD_PART

MAX_ROWS = 5  # of queues, environments, reward parts
MAX_CHARACTERS = 400  # of a message
MAX_NAME = 40  # characters of a task or a reward part
TRAINED_PART = "trained_reward/"
SMALL_HEIGHT = 16  # lines, below which only the first panel is drawn
RATES = (
    ("sampled", "time/collect_tokens_per_second"),
    ("trained", "time/update_tokens_per_second"),
    ("whole step", "time/tokens_per_second"),
)


@dataclass(frozen=True)
class View:
    """What there is to draw."""

    progress: PhaseProgress
    status: LiveStatus
    episodes_per_second: float | None
    warnings: Sequence[str]  # the newest last
    num_warnings: int
    encoding: str = "utf-8"


def draw(view: View, width: int, height: int) -> RenderableType:
    """The dashboard in at most `height` lines."""
    if height < SMALL_HEIGHT or width < 60:
        return _phase_panel(view)
    tables = Table.grid(expand=True, padding=(0, 2))
    for _ in range(3):
        tables.add_column(ratio=1)
    tables.add_row(_rates(view), _rewards(view), _queues(view))
    parts = [_phase_panel(view), tables, *_environments(view)]
    used = 4 + MAX_ROWS + 1 + 1 + MAX_ROWS  # lines of the panel, of the tables, of environments
    warnings = _warnings(view)
    excerpt = _excerpt(view, height - used - len(warnings) - 3, width - 4)
    return Group(*parts, *excerpt, *warnings)


def _text(text: str, view: View, style: str = "", characters: int = MAX_NAME) -> Text:
    """One line that is what it says: neither markup nor control sequences nor emoji codes."""
    line = one_line(text, characters, view.encoding)
    return Text(line, style, no_wrap=True, overflow="ellipsis")


def _phase_panel(view: View) -> Panel:
    """Phase, step, time left, and what the trainer does."""
    p, now = view.progress, time.monotonic()
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    fraction = p.completed / max(p.total, 1)
    left, step = p.seconds_left, p.step_seconds
    grid.add_row(
        f"step {p.completed:,}/{p.total:,}",
        ProgressBar(total=max(p.total, 1), completed=p.completed),
        f"{100 * fraction:.0f} %  {format_duration(left) if left is not None else '-:--'} left",
    )
    doing = f"{p.activity.name or 'starting'} for {format_duration(now - p.activity.since)}"
    taken = f"a step takes {step:.2f} s  " if step is not None else ""
    grid.add_row("", _text(doing, view), f"{taken}{format_duration(now - p.start_time)} so far")
    return Panel(grid, title=_text(p.title or p.phase, view, "bold", 100), title_align="left")


def _table(title: str, rows: Iterable[tuple[Text, str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, show_header=False, expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, justify="right")
    for name, value in list(rows)[:MAX_ROWS]:
        table.add_row(name, Text(value))
    return table


def _rates(view: View) -> Table:
    """Tokens and episodes per second, use of the device and of memory."""
    p = view.progress
    rows = [
        (Text(f"{label} tokens/s"), f"{rate:,.0f}")
        for label, name in RATES
        if (rate := p.mean(name)) is not None
    ]
    if view.episodes_per_second is not None:
        rows.append((Text("episodes/s"), f"{view.episodes_per_second:,.2f}"))
    memory, limit = p.mean("time/memory_peak"), p.mean("time/memory_limit")
    utilization = p.mean("mfu/update")
    if memory is not None:
        of_limit = "" if limit is None else f" of {limit:.1f}"
        rows.append((Text("device memory"), f"{memory:.1f}{of_limit} GiB"))
    elif (host := p.mean("time/host_memory_peak")) is not None:
        rows.append((Text("host memory"), f"{host:.1f} GiB"))
    if utilization is not None:
        rows.insert(2, (Text("MFU of updates"), f"{100 * utilization:.1f} %"))
    return _table("rates", rows)


def _rewards(view: View) -> Table:
    """Return or loss, and reward parts, of the last steps."""
    p = view.progress
    rows = [
        (Text(label), f"{value:.3f}")
        for label, name in (
            ("return", "rollout/return"), ("success", "rollout/success"), ("loss", "loss"),
        )
        if (value := p.mean(name)) is not None
    ]  # fmt: skip
    parts = p.reward_parts(TRAINED_PART) or p.reward_parts(REWARD_PART)
    rows += [(_text(name, view), f"{value:.3f}") for name, value in parts.items()]
    return _table(f"rewards, last {max(len(p.recent), 1)} steps", rows)


def _queues(view: View) -> Table:
    rows = [(_text(queue.name, view), queue.depth) for queue in view.status.queues]
    return _table("queues", rows)


def _environments(view: View) -> list[RenderableType]:
    """The slowest environments, and the episodes that wait longest."""
    status = view.status
    rows = [
        (_text(x.name, view), f"{x.mean:.3f} s a step, at most {x.longest:.3f} s")
        for x in status.environments[: MAX_ROWS - 2]
    ]
    rows += [
        (_text(f"{x.task} waits for {x.target}", view, "yellow", 120), f"{x.seconds:.1f} s so far")
        for x in status.waits[:2]
    ]
    return [_table("slowest environments", rows)] if rows else []


def _excerpt(view: View, lines: int, width: int) -> list[RenderableType]:
    """The end of the last finished episode, in so many lines."""
    excerpt = view.status.excerpt
    if excerpt is None or lines < 3:
        return []
    messages = excerpt.messages[-max(1, (lines - 2) // 2) :]
    rows = []
    for role, text in messages:
        line = Text(overflow="ellipsis")
        line.append(one_line(role, MAX_NAME, view.encoding), "bold cyan")
        line.append("  " + one_line(text, MAX_CHARACTERS, view.encoding))
        line.truncate(2 * width - 4, overflow="ellipsis")
        rows.append(line)
    title = _text(excerpt.title, view, "", 120)
    return [Panel(Group(*rows), title=title, title_align="left")]


def _warnings(view: View) -> list[RenderableType]:
    older = view.num_warnings - len(view.warnings)
    lines = [_text(f"warning: {text}", view, "yellow", 300) for text in view.warnings]
    return [*([Text(f"{older} older warnings", "yellow")] if older > 0 else []), *lines]
