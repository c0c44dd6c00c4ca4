"""Lines of tables."""

from agentrl_jax.launch.boards.entries import Found
from agentrl_jax.launch.sweeps.table import MISSING
from agentrl_jax.statistics import mean_interval


def head(*names: str) -> list[str]:
    """The first two lines."""
    return [line(*names), "|---" * len(names) + "|"]


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def number(cells: Found, name: str, style: str, more: str = "") -> str:
    """-7.03 ± 0.12 and what is `more`, of what is known; one cell alone has no interval."""
    known = [cell[name] for cell in cells if cell is not None]
    if not known:
        return MISSING
    mean, half = mean_interval(known)
    interval = f" ± {half:{style}}" if len(known) > 1 else ""
    return f"{mean:{style}}{interval}{more}" + (f" ({len(cells) - len(known)} {MISSING})" if len(known) < len(cells) else "")
