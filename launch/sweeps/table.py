"""The results of a sweep: one row per setting, as data and as Markdown."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.grid import Setting, setting_name
from agentrl_jax.launch.sweeps.measures import last_row
from agentrl_jax.reporting.statistics import mean_interval
from agentrl_jax.storage.files import write_json

MISSING = "missing"


def setting_row(setting: Setting, cells: Sequence[Cell]) -> dict[str, Any]:
    """A setting's results per seed (None: missing), and [mean, half-width of its interval]."""
    row_of_seed = {
        str(cell.seed): last_row(cell.run_dir) if cell.finished else None for cell in cells
    }
    setting_summary: dict[str, Any] = {
        "setting": dict(setting),
        "command": ["agentrl-train", *cells[0].flags[:-1]],
    }
    for name, field in (("return", "mean_return"), ("success", "win_rate")):
        seeds = {seed: None if row is None else row[field] for seed, row in row_of_seed.items()}
        known = [value for value in seeds.values() if value is not None]
        setting_summary[name] = {
            "seeds": seeds,
            "mean_interval": mean_interval(known) if known else None,
        }
    return setting_summary


def markdown_table(lines: Sequence[dict[str, Any]]) -> str:
    """Return and success after the last phase."""
    seeds = list(lines[0]["return"]["seeds"])
    heads = ["setting", "return", "success", *(f"seed {seed}" for seed in seeds)]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for line in lines:
        rewards, wins = line["return"], line["success"]
        each = [_format_cell(rewards["seeds"][seed], wins["seeds"][seed]) for seed in seeds]
        success_rate = format_mean_interval(wins["mean_interval"], ".0f", 100.0)
        success = (
            "-"
            if rewards["mean_interval"] and not wins["mean_interval"]
            else success_rate
            if success_rate == MISSING
            else f"{success_rate} %"
        )
        columns = [
            setting_name(line["setting"]) or "as it is",
            format_mean_interval(rewards["mean_interval"], ".2f"),
            success,
            *each,
        ]
        table.append(f"| {' | '.join(columns)} |")
    return "\n".join(table)


def format_mean_interval(
    mean_and_half_width: Sequence[float] | None, number_format: str, scale: float = 1.0
) -> str:
    """(-2.354, 0.1) -> -2.35 ± 0.10; of one value the interval is unknown: -2.35 ± ?"""
    if mean_and_half_width is None:
        return MISSING
    mean, half = (scale * x for x in mean_and_half_width)
    return (
        f"{mean:{number_format}} ± "
        f"{'?' if half == math.inf else format(half, number_format.removeprefix('+'))}"
    )


def _format_cell(reward: float | None, win: float | None) -> str:
    if reward is None:
        return MISSING
    return f"{reward:.2f}" + ("" if win is None else f", {100 * win:.0f} %")


def write_table(out: Path, header: dict[str, Any], lines: Sequence[dict[str, Any]]) -> None:
    """Write sweep.json, with null for an unknown interval, and sweep.md.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        write_json(out / "sweep.json", {**header, "settings": list(lines)})
        (out / "sweep.md").write_text(markdown_table(lines) + "\n")
    except OSError as error:
        raise UserError(
            f"the folder {out} cannot be written ({error.strerror}): name another one"
        ) from error
