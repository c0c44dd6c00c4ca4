"""The evaluation as a table on the terminal, and the comparison of two players as a sentence."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentrl_jax.reporting.statistics import EvaluationSummary


def encodable_text(text: str, console: Console) -> str:
    """The text in characters that the terminal can encode."""
    return text if console.encoding.startswith("utf") else text.replace("±", "+-")


def evaluation_table(summaries: Sequence[EvaluationSummary], console: Console) -> Table:
    """The evaluation, one row per player in each environment; the columns of environments and of
    truncated episodes only where there are any.
    """
    table = Table(title="Evaluation (intervals are at 95 %)", title_justify="left")
    any_labels = any(s.environment for s in summaries)
    for column in ("environment", "player") if any_labels else ("player",):
        table.add_column(column)
    any_truncated = any(s.truncated for s in summaries)
    columns = ("episodes", "mean return", "win rate", "turns", "score")
    for column in (*columns, "truncated") if any_truncated else columns:
        table.add_column(column, justify="right", no_wrap=True)
    for s in summaries:
        numbers = (
            _format_mean(s.mean_return, s.interval),
            _format_win_rate(s),
            _format_number(s.mean_turns, 1),
            _format_number(s.score, 1),
            *((f"{100 * s.truncated:.0f} %",) if any_truncated else ()),
        )
        names = (s.environment, s.name) if any_labels else (s.name,)
        table.add_row(
            *map(Text, names),
            str(s.episodes),
            *(encodable_text(number, console) for number in numbers),
        )
    return table


def difference_sentence(difference: tuple[float, float], names: tuple[str, str]) -> str:
    """The paired difference (mean, half-width) of two players as one sentence."""
    mean, half = difference
    better, worse = names
    if abs(mean) > half:
        verdict = f"{better} is {'better' if mean > 0 else 'worse'} than {worse}"
    else:
        verdict = f"these episodes cannot tell {better} from {worse}"
    difference_text = f"{mean:+.2f} ± {half:.2f} (95 %)"
    return f"{better} - {worse}, same seeds: mean return {difference_text}, so {verdict}."


def _format_mean(mean: float, half_width: float) -> str:
    return f"{mean:.2f} ± {half_width:.2f}" if math.isfinite(half_width) else _format_number(mean)


def _format_number(x: float | None, digits: int = 2) -> str:
    return "-" if x is None or not math.isfinite(x) else f"{x:.{digits}f}"


def _format_win_rate(s: EvaluationSummary) -> str:
    if s.win_rate is None or s.win_interval is None:
        return "-"
    low, high = s.win_interval
    return f"{100 * s.win_rate:.0f} % ({100 * low:.0f}-{100 * high:.0f})"
