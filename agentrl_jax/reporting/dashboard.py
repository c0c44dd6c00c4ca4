"""The dashboard of a run as lines: a function of what there is to see.

Lines are put together here, and not by tables and panels of `rich`: those take ten times as long,
and the interpreter is the trainer's meanwhile.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style

from agentrl_jax.reporting.live_status import LiveStatus
from agentrl_jax.reporting.phase_progress import PhaseProgress, format_duration
from agentrl_jax.reporting.plain_text import one_line
from agentrl_jax.reporting.statistics import REWARD_PART

MAX_ROWS = 6  # of a column
MAX_CHARACTERS = 400  # of a name or a message; what does not fit is cut
SMALL_HEIGHT, SMALL_WIDTH = 14, 60  # of a terminal that has room for the first lines only
TRAINED_PART = "trained_reward/"
RATES = (
    ("sampled tokens/s", "time/collect_tokens_per_second"),
    ("trained tokens/s", "time/update_tokens_per_second"),
    ("tokens/s of a step", "time/tokens_per_second"),
)
PLAIN, BOLD, DIM = Style(), Style(bold=True), Style(dim=True)
HEADER, ROLE, BAR = Style(bold=True, color="cyan"), Style(color="cyan"), Style(color="green")
WARNING = Style(color="yellow")
Line = tuple[tuple[str, Style], ...]  # texts with their styles
Row = tuple[str, str]  # a name and a value


@dataclass(frozen=True)
class View:
    """What there is to draw."""

    progress: PhaseProgress
    status: LiveStatus
    episodes_per_second: float | None
    warnings: Sequence[str]  # the newest last
    num_warnings: int
    encoding: str = "utf-8"


@dataclass(frozen=True)
class Lines:
    """Lines as `rich` draws them."""

    lines: Sequence[Line]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in self.lines:
            yield from (Segment(text, style) for text, style in line)
            yield Segment.line()


def draw(view: View, width: int, height: int) -> Lines:
    """The dashboard in at most `height` lines of at most `width` cells."""
    lines = _phase(view, width)
    if height < SMALL_HEIGHT or width < SMALL_WIDTH:
        return Lines(lines[:height])
    lines += [_line(), *_columns(view, width), *_environments(view, width)]
    warnings = _warnings(view, width)
    lines += _excerpt(view, width, height - len(lines) - len(warnings))
    return Lines([*lines, *warnings][:height])


def _line(*parts: tuple[str, Style]) -> Line:
    return parts


def _fit(text: str, cells: int) -> str:
    """The text in so many cells, cut with an ellipsis or filled with spaces."""
    if cells <= 0:
        return ""
    too_long = cell_len(text) > cells
    return set_cell_size(text, cells - 1) + "…" if too_long else set_cell_size(text, cells)


def _fit_at_most(text: str, cells: int) -> str:
    """The text, cut where it is longer."""
    return _fit(text, min(cell_len(text), cells))


def _phase(view: View, width: int) -> list[Line]:
    """Phase, step, time left, and what the trainer does."""
    p, now = view.progress, time.monotonic()
    elapsed, left, step = now - p.start_time, p.seconds_left, p.step_seconds
    doing = f"{p.activity.name or 'starting'} for {format_duration(now - p.activity.since)}"
    taken = "" if step is None else f"{step:.2f} s a step, "
    right = _fit_at_most(f"  {taken}{format_duration(elapsed)} so far", width)
    title = one_line(p.title or p.phase, MAX_CHARACTERS, view.encoding)
    fraction = p.completed / max(p.total, 1)
    start = _fit_at_most(f"step {p.completed:,}/{p.total:,} ", width)
    remaining = "-:--" if left is None else format_duration(left)
    end = f" {100 * fraction:.0f} %, {remaining} left, {doing}"
    cells = max(0, min(40, width - cell_len(start) - cell_len(end)))
    filled = round(fraction * cells)
    bar, rest = ("━" * filled, "─" * (cells - filled))
    if not view.encoding.startswith("utf"):
        bar, rest = "#" * filled, "-" * (cells - filled)
    used = cell_len(start) + cells
    return [
        _line((_fit(title, width - cell_len(right)), BOLD), (right, DIM)),
        _line((start, PLAIN), (bar, BAR), (rest, DIM), (_fit(end, width - used), PLAIN)),
    ]


def _columns(view: View, width: int) -> list[Line]:
    """Rates, rewards and queues beside each other."""
    window = max(len(view.progress.recent), 1)
    columns = (
        ("rates", _rates(view)),
        (f"rewards, last {window} steps", _rewards(view)),
        ("queues", [(queue.name, queue.depth) for queue in view.status.queues]),
    )
    cells = (width - 4) // 3
    lines = [_line(("  ".join(_fit(title, cells) for title, _ in columns), HEADER))]
    for i in range(min(MAX_ROWS, max(len(rows) for _, rows in columns))):
        parts = [
            _row(rows[i], cells, view) if i < len(rows) else " " * cells for _, rows in columns
        ]
        lines.append(_line(("  ".join(parts), PLAIN)))
    return lines


def _row(row: Row, cells: int, view: View) -> str:
    """A name on the left and a value on the right."""
    name, value = (one_line(text, MAX_CHARACTERS, view.encoding) for text in row)
    value = _fit_at_most(value, cells // 2)
    return _fit(name, cells - cell_len(value) - 1) + " " + value


def _rates(view: View) -> list[Row]:
    """Tokens and episodes per second, use of the device and of memory."""
    p, rate = view.progress, view.episodes_per_second
    means = [(label, p.mean(name)) for label, name in RATES]
    rows = [(label, f"{value:,.0f}") for label, value in means if value is not None]
    if rate is not None:
        rows.append(("episodes/s", f"{rate:,.2f}"))
    utilization, memory = p.mean("mfu/update"), p.mean("time/memory_peak")
    if utilization is not None:
        rows.append(("MFU of updates", f"{100 * utilization:.1f} %"))
    limit, host = p.mean("time/memory_limit"), p.mean("time/host_memory_peak")
    if memory is not None:
        rows.append(("device memory", f"{memory:.1f}{f' of {limit:.1f}' if limit else ''} GiB"))
    elif host is not None:
        rows.append(("host memory", f"{host:.1f} GiB"))
    return rows


def _rewards(view: View) -> list[Row]:
    """Return or loss, and reward parts, of the last steps."""
    p = view.progress
    names = (("return", "rollout/return"), ("success", "rollout/success"), ("loss", "loss"))
    means = [(label, p.mean(name)) for label, name in names]
    rows = [(label, f"{value:.3f}") for label, value in means if value is not None]
    parts = p.reward_parts(TRAINED_PART) or p.reward_parts(REWARD_PART)
    return rows + [(name, f"{value:.3f}") for name, value in parts.items()]


def _environments(view: View, width: int) -> list[Line]:
    """The slowest environments, and the episodes that wait longest."""
    status = view.status
    rows = [
        (x.name, f"{x.mean:.3f} s a step, at most {x.longest:.3f} s")
        for x in status.environments[:3]
    ]
    lines = [_line((_row(row, width, view), PLAIN)) for row in rows]
    for x in status.waits[:2]:
        row = x.task, f"waits {x.seconds:.0f} s for {x.target}"
        lines.append(_line((_row(row, width, view), WARNING)))
    return [_line(), _line((_fit("slowest environments", width), HEADER)), *lines] if lines else []


def _excerpt(view: View, width: int, lines: int) -> list[Line]:
    """The end of the last finished episode, in so many lines."""
    excerpt = view.status.excerpt
    if excerpt is None or lines < 3:
        return []
    title = one_line(excerpt.title, MAX_CHARACTERS, view.encoding)
    result = [_line(), _line((_fit(title, width), HEADER))]
    messages = excerpt.messages[-(lines - 2) :]
    most = (lines - 2) // max(len(messages), 1)  # lines of a message
    for role, text in messages:
        name = one_line(role, MAX_CHARACTERS, view.encoding)
        start = _fit_at_most(name, width // 4) + "  "
        cells = width - cell_len(start)
        first, *others = chop_cells(one_line(text, MAX_CHARACTERS, view.encoding), cells) or [""]
        for i, part in enumerate([first, *others[: most - 1]]):
            is_cut = i == most - 1 and len(others) >= most
            indent = (start, ROLE) if i == 0 else (" " * cell_len(start), PLAIN)
            result.append(_line(indent, (_fit(part + "…" * is_cut, cells), PLAIN)))
    return result


def _warnings(view: View, width: int) -> list[Line]:
    older = view.num_warnings - len(view.warnings)
    header = "warnings" + (f" ({older} older ones are above)" if older > 0 else "")
    lines = [one_line(text, MAX_CHARACTERS, view.encoding) for text in view.warnings]
    body = [_line((_fit(line, width), WARNING)) for line in lines]
    return [_line(), _line((_fit(header, width), HEADER)), *body] if body else []
