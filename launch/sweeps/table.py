"""What the cells of a sweep got: one line a setting, as data and as Markdown."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.grid import Setting, name_of
from agentrl_jax.launch.sweeps.measures import last_row
from agentrl_jax.run import write_json
from agentrl_jax.statistics import mean_interval

MISSING = "missing"


def line_of(setting: Setting, cells: Sequence[Cell]) -> dict[str, Any]:
    """A setting, what each seed got (None: missing), and means with the half-widths of their intervals over the seeds."""
    rows = {str(cell.seed): last_row(cell.run_dir) if cell.finished else None for cell in cells}
    found: dict[str, Any] = {"setting": dict(setting), "command": ["agentrl-train", *cells[0].flags[:-1]]}
    for name, field in (("return", "mean_return"), ("success", "win_rate")):
        seeds = {seed: None if row is None else row[field] for seed, row in rows.items()}
        known = [value for value in seeds.values() if value is not None]
        found[name] = {"seeds": seeds, "mean_interval": mean_interval(known) if known else None}
    return found


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Return and success after the last phase."""
    seeds = list(lines[0]["return"]["seeds"])
    heads = ["setting", "return", "success", *(f"seed {seed}" for seed in seeds)]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for line in lines:
        rewards, wins = line["return"], line["success"]
        each = [_cell(rewards["seeds"][seed], wins["seeds"][seed]) for seed in seeds]
        share = with_interval(wins["mean_interval"], ".0f", 100.0)
        success = "-" if rewards["mean_interval"] and not wins["mean_interval"] else share if share == MISSING else f"{share} %"
        shown = [name_of(line["setting"]) or "as it is", with_interval(rewards["mean_interval"], ".2f"), success, *each]
        table.append(f"| {' | '.join(shown)} |")
    return "\n".join(table)


def with_interval(found: Sequence[float] | None, style: str, scale: float = 1.0) -> str:
    """(-2.354, 0.1) -> -2.35 ± 0.10; of one value the interval is unknown: -2.35 ± ?"""
    if found is None:
        return MISSING
    mean, half = (scale * x for x in found)
    return f"{mean:{style}} ± {'?' if half == math.inf else format(half, style.removeprefix('+'))}"


def _cell(reward: float | None, win: float | None) -> str:
    if reward is None:
        return MISSING
    return f"{reward:.2f}" + ("" if win is None else f", {100 * win:.0f} %")


def write(out: Path, head: dict[str, Any], lines: Sequence[dict[str, Any]]) -> None:
    """sweep.json and sweep.md; an interval that is unknown is null. Raises UserError where the folder cannot be written."""
    try:
        write_json(out / "sweep.json", {**head, "settings": list(lines)})
        (out / "sweep.md").write_text(markdown(lines) + "\n")
    except OSError as error:
        raise UserError(f"the folder {out} cannot be written ({error.strerror}): name another one") from error
