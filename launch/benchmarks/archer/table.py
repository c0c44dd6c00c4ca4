"""The tables of ArCHer's claim, from the cells that are cached."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.configs.archer_claim import TASKS
from agentrl_jax.launch.benchmarks.archer.cells import (
    ClaimCell,
    cell_turns,
    expert_return,
    load_credit,
    tuned_setting,
    tuning_cells,
)
from agentrl_jax.launch.benchmarks.archer.measures import TurnsToLevel, turn_ratio
from agentrl_jax.launch.benchmarks.archer.settings import SEEDS, SIDES, TUNING_SEEDS, ClaimSide
from agentrl_jax.launch.benchmarks.tables.markdown import table_header, table_row
from agentrl_jax.launch.sweeps.table import MISSING, format_mean_interval
from agentrl_jax.reporting.statistics import mean_interval

BASE = "ppo"
DIAGNOSES = {
    "critic/correlation": "critic's correlation",
    "utterances/repeated": "repeated utterances",
    "entropy": "entropy",
}
CREDIT_FORMATS = {
    "turns_per_game": ".0f",
    "tokens_per_utterance": ".1f",
    "rho": ".3f",
    "bound": ".0f",
}
HEADS = (
    "task", "side", "setting", "seeds", "turns to half way", "not within the budget",
    "PPO's turns over these", "mean return over the budget", "updates a 1,000 turns",
)  # fmt: skip


def claim_table(folder: Path) -> str:
    """A row for each side of a task that has cells; the others are named in one row a task."""
    lines = table_header(*HEADS)
    for task in TASKS:
        missing = []
        for side in SIDES.values():
            if _measured(task, side, folder):
                lines.append(_side_row(task, side, folder))
            else:
                missing.append(side.label)
        if missing:
            lines.append(table_row(task, "; ".join(missing), *[MISSING] * (len(HEADS) - 2)))
    return "\n".join(lines)


def tuning_table(folder: Path) -> str:
    """Turns to half way of each setting that was tried, on the tuning seeds, and how good its
    critic was.
    """
    seeds = (f"seed {seed}" for seed in TUNING_SEEDS)
    lines = table_header("task", "side", "setting", *seeds, *DIAGNOSES.values())
    for task in TASKS:
        for side in SIDES.values():
            by_setting: dict[str, dict[int, ClaimCell]] = {}
            for cell in tuning_cells(task, side, folder):
                if cell.load(folder) is not None:
                    by_setting.setdefault(cell.setting.name, {})[cell.seed] = cell
            for name, cells in by_setting.items():
                columns = [
                    _format_turns(cell_turns(cells[seed], folder) if seed in cells else None)
                    for seed in TUNING_SEEDS
                ]
                metrics = [cell.load(folder) for cell in cells.values()]
                columns += [_format_metric(metrics, metric) for metric in DIAGNOSES]
                lines.append(table_row(task, side.variant, name, *columns))
    return "\n".join(lines)


def _format_metric(results: Sequence[Mapping[str, Any] | None], metric: str) -> str:
    """A metric of each cell; "-" where the side has no such metric."""
    values = [x["metrics"][metric] for x in results if x is not None and metric in x["metrics"]]
    return ", ".join(f"{value:.2f}" for value in values) or "-"


def tasks_table(folder: Path) -> str:
    """A row for each task: its size, rho and its bound, the returns of cloning and expert."""
    heads = (
        "task", "turns a game", "tokens an utterance", "rho", "bound 1/rho²", "measured",
        "cloning", "expert",
    )  # fmt: skip
    lines = table_header(*heads)
    for task in TASKS:
        credit, expert = load_credit(task, folder), expert_return(task, folder)
        if credit is None:
            lines.append(table_row(task, *[MISSING] * (len(heads) - 1)))
            continue
        columns = [
            "none" if credit[name] is None else f"{credit[name]:{form}}"
            for name, form in CREDIT_FORMATS.items()
        ]
        best = MISSING if expert is None else f"{expert:.2f}"
        lines.append(table_row(task, *columns, credit["how"], f"{credit['return']:.2f}", best))
    return "\n".join(lines)


TABLES = {"claim_tasks": tasks_table, "claim": claim_table, "claim_tuning": tuning_table}


def summary(folder: Path) -> dict[str, Any]:
    """The ratio of every side, with its interval; null where cells are missing."""
    return {
        f"{task}-{side.variant}": _ratio_text(task, side, folder)
        for task in TASKS
        for side in SIDES.values()
    }


def cell_line(cell: ClaimCell, folder: Path) -> str:
    """One cell in a line."""
    results = cell.load(folder)
    assert results is not None
    curve = ", ".join(
        f"{n}: {x:.2f}" for n, x in zip(results["turns"], results["returns"], strict=True)
    )
    return (
        f"{_format_turns(cell_turns(cell, folder))} turns, {results['cpu_seconds']:.0f} s of CPU "
        f"({curve}) {results['metrics']}"
    )


def _cells(task: str, side: ClaimSide, folder: Path) -> list[ClaimCell]:
    setting = tuned_setting(task, side, folder)
    return [] if setting is None else [ClaimCell(task, side, setting, seed) for seed in SEEDS]


def _measured(task: str, side: ClaimSide, folder: Path) -> dict[int, TurnsToLevel]:
    cells = {cell.seed: cell_turns(cell, folder) for cell in _cells(task, side, folder)}
    return {seed: turns for seed, turns in cells.items() if turns is not None}


def _side_row(task: str, side: ClaimSide, folder: Path) -> str:
    cells, measured = _cells(task, side, folder), _measured(task, side, folder)
    results = [x for cell in cells if (x := cell.load(folder)) is not None]
    values = list(measured.values())
    updates = [1000 * (x["policy_updates"] + x["critic_updates"]) / x["turns"][-1] for x in results]
    turns = math.exp(np.mean([x.log_turns for x in values]))
    count = f"{len(values)}" + (
        f" ({len(SEEDS) - len(values)} {MISSING})" if len(values) < len(SEEDS) else ""
    )
    return table_row(
        task,
        side.label,
        cells[0].setting.name,
        count,
        f"{turns:,.0f}",
        f"{100 * np.mean([x.censored for x in values]):.0f} %",
        _ratio_text(task, side, folder) or "-",
        format_mean_interval(mean_interval([x.area for x in values]), ".2f"),
        f"{np.mean(updates):.0f}",
    )


def _ratio_text(task: str, side: ClaimSide, folder: Path) -> str | None:
    """The ratio over the seeds that both sides have; None with fewer than two, and for the base."""
    base, compared = (_measured(task, x, folder) for x in (SIDES[BASE], side))
    seeds = sorted(base.keys() & compared.keys())
    if side.variant == BASE or len(seeds) < 2:
        return None
    return str(turn_ratio([base[x] for x in seeds], [compared[x] for x in seeds]))


def _format_turns(turns: TurnsToLevel | None) -> str:
    if turns is None:
        return "-"
    return (
        f"over {turns.turns:,.0f} (mean {turns.area:.2f})"
        if turns.censored
        else f"{turns.turns:,.0f}"
    )
