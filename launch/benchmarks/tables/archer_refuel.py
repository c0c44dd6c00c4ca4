"""The tables of docs/archer.md and docs/refuel.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.launch.benchmarks.tables.entries import (
    CellResults,
    TableEntry,
    configs_note,
    imitation_results,
    measure_run,
)
from agentrl_jax.launch.benchmarks.tables.markdown import format_mean, table_header, table_row
from agentrl_jax.launch.sweeps.measures import metric_values
from agentrl_jax.launch.sweeps.table import MISSING

THREE_SEEDS = (0, 1, 2)
ONE_SEED = (0,)
TASK_SEEDS = {
    "subset": THREE_SEEDS,
    "questions": ONE_SEED,
    "city": ONE_SEED,
    "detective": ONE_SEED,
    "shop": ONE_SEED,
}
ONLINE_METHODS = {
    "filtered": "filtered BC",
    "online_filtered": "online filtered BC",
    "chai": "CHAI",
    "ppo": "PPO",
    "archer": "ArCHer",
}
OFFLINE_METHODS = {  # on Twenty Questions; published: all its words, 5 seeds
    "filtered": ("filtered BC", -15.4),
    "iql_awr": ("IQL + AWR", -14.1),
    "sarsa_awr": ("SARSA + AWR", -14.5),
    "iql_reinforce": ("IQL + REINFORCE", -20),
    "iql_reinforce_bc": ("IQL + REINFORCE + BC", -15.3),
}
ABLATIONS = {
    "archer": "ArCHer",
    "forgetful": "small replay",
    "monte_carlo": "Monte-Carlo critic",
    "baseline": "token baseline",
    "shared": "policy's trunk",
    "clipped": "PPO's clip",
}
ABLATION_TASKS = {
    "subset": tuple(ABLATIONS),
    "city": ("archer", "baseline"),
}  # a baseline per token is meant for long utterances
DIALOGUE_METHODS = (
    "refuel",
    "multi_turn_mixed",
    "last_turn",
    "last_turn_mixed",
    "last_turn_offline",
    "refuel_dpo",
)
DIALOGUE_TURNS = (1, 2, 3, 4, 5)
TWO_ITERATION_METHODS = {"refuel_twice": "refuel", "last_turn_twice": "last_turn"}
SMOOTHING_ITERATIONS = 4  # width of the moving average of a curve


def measure_with_curve(run_dir: Path) -> dict[str, Any]:
    """`measure_run`, and a curve: (turns played so far, mean return) after each iteration."""
    turns = np.cumsum(metric_values(run_dir, "rollout/turns_played")).tolist()
    return {
        **measure_run(run_dir),
        "curve": [*zip(turns, metric_values(run_dir, "rollout/return"))],
    }


def measure_with_rollout_returns(run_dir: Path) -> dict[str, Any]:
    """`measure_run`, and the mean return of each iteration's rollouts, before its update."""
    return {**measure_run(run_dir), "played": metric_values(run_dir, "rollout/return")}


def _make_entries() -> dict[tuple[str, str], TableEntry]:
    cells: dict[tuple[str, str], TableEntry] = {}
    methods = dict.fromkeys(TASK_SEEDS, ()) | ABLATION_TASKS
    methods["subset"] += tuple(OFFLINE_METHODS)
    for task, seeds in TASK_SEEDS.items():
        for method in dict.fromkeys((*ONLINE_METHODS, *methods[task])):
            measure = measure_with_curve if method in ("ppo", "archer") else measure_run
            cells[task, method] = TableEntry(
                task, method, f"configs/archer.py:{task}-{method}", seeds, measure
            )
    for turns in DIALOGUE_TURNS:
        for method in DIALOGUE_METHODS:
            task, overrides = f"turns_{turns}", {"environment.options.horizon": str(turns)}
            cells[task, method] = TableEntry(
                task,
                method,
                f"configs/dialogue_refuel.py:{method}",
                THREE_SEEDS,
                overrides=overrides,
            )
    for method in TWO_ITERATION_METHODS:
        cells["iterations", method] = TableEntry(
            "iterations",
            method,
            f"configs/dialogue_refuel.py:{method}",
            THREE_SEEDS,
            measure_with_rollout_returns,
        )
    return cells


ENTRIES = _make_entries()


def online_table(folder: Path) -> str:
    """Mean returns after the last iteration."""
    lines = table_header("task", "BC", *ONLINE_METHODS.values())
    for task in TASK_SEEDS:
        cells = [ENTRIES[task, method].load_results(folder) for method in ONLINE_METHODS]
        lines.append(
            table_row(
                task,
                *(format_mean(x, "return", ".2f") for x in (imitation_results(cells[-1]), *cells)),
            )
        )
    return "\n".join(lines)


def samples_table(folder: Path) -> str:
    """Turns played until PPO's best return, and until ArCHer reaches it.

    Curves are averaged over seeds and smoothed over `SMOOTHING_ITERATIONS` iterations.
    """
    lines = table_header("task", "PPO's best return", "turns of PPO", "turns of ArCHer", "ratio")
    for task in TASK_SEEDS:
        ppo, archer = (
            smoothed_curve(ENTRIES[task, method].load_results(folder))
            for method in ("ppo", "archer")
        )
        lines.append(
            table_row(
                task,
                *(
                    [MISSING] * 4
                    if ppo is None or archer is None
                    else compare_sample_efficiency(ppo, archer)
                ),
            )
        )
    return "\n".join(lines)


def smoothed_curve(cells: CellResults) -> np.ndarray | None:
    """(turns played so far, mean return), [iterations, 2]; None: cells are missing."""
    if any(cell is None for cell in cells):
        return None
    mean = np.mean([cell["curve"] for cell in cells if cell is not None], axis=0)
    kernel = np.ones(SMOOTHING_ITERATIONS) / SMOOTHING_ITERATIONS
    return np.stack(
        [mean[SMOOTHING_ITERATIONS - 1 :, 0], np.convolve(mean[:, 1], kernel, "valid")], axis=1
    )


def compare_sample_efficiency(ppo: np.ndarray, archer: np.ndarray) -> list[str]:
    """PPO's best return, the turns both need to reach it, and their ratio, as cells of a row."""
    turns, best = ppo[int(np.argmax(ppo[:, 1]))]
    reached = archer[archer[:, 1] >= best, 0]
    if not len(reached):
        return [
            f"{best:.2f}",
            f"{turns:,.0f}",
            f"not within {archer[-1, 0]:,.0f} (at best {archer[:, 1].max():.2f})",
            "-",
        ]
    return [f"{best:.2f}", f"{turns:,.0f}", f"{reached[0]:,.0f}", f"{turns / reached[0]:.1f}"]


def offline_table(folder: Path) -> str:
    """Mean returns after offline training on demonstrations, and the published ones."""
    cells = {method: ENTRIES["subset", method].load_results(folder) for method in OFFLINE_METHODS}
    plain = imitation_results(cells["iql_awr"])
    lines = table_header("", "BC", *(name for name, _ in OFFLINE_METHODS.values()))
    lines.append(
        table_row(
            "ten words, here", *(format_mean(x, "return", ".2f") for x in (plain, *cells.values()))
        )
    )
    lines.append(
        table_row(
            "all words, published",
            "-16.8",
            *(str(published) for _, published in OFFLINE_METHODS.values()),
        )
    )
    return "\n".join(lines)


def ablations_table(folder: Path) -> str:
    """Mean returns with one thing changed; `-`: not run on this task."""
    return _returns_table([*ABLATION_TASKS], ABLATIONS, folder)


def turns_table(folder: Path) -> str:
    """Mean returns by the number of turns of a dialogue."""
    return _returns_table(
        [f"turns_{turns}" for turns in DIALOGUE_TURNS],
        {method: method for method in DIALOGUE_METHODS},
        folder,
    )


def iterations_table(folder: Path) -> str:
    """Mean returns before, between and after two iterations."""
    lines = table_header("", "fine-tuned", "one iteration", "two iterations")
    for method, label in TWO_ITERATION_METHODS.items():
        cells = ENTRIES["iterations", method].load_results(folder)
        between = [cell and {"return": cell["played"][1]} for cell in cells]
        lines.append(
            table_row(
                label,
                *(
                    format_mean(x, "return", ".2f")
                    for x in (imitation_results(cells), between, cells)
                ),
            )
        )
    return "\n".join(lines)


def archer_note(folder: Path) -> str:
    """Which cells of ArCHer's tables were measured with an earlier config."""
    return configs_note((x for x in ENTRIES.values() if x.task in TASK_SEEDS), folder)


def refuel_note(folder: Path) -> str:
    """Which cells of REFUEL's tables were measured with an earlier config."""
    return configs_note((x for x in ENTRIES.values() if x.task not in TASK_SEEDS), folder)


def _returns_table(tasks: Sequence[str], methods: dict[str, str], folder: Path) -> str:
    lines = table_header("", *methods.values())
    for task in tasks:
        cells = (ENTRIES.get((task, method)) for method in methods)
        lines.append(
            table_row(
                task,
                *(
                    "-"
                    if entry is None
                    else format_mean(entry.load_results(folder), "return", ".2f")
                    for entry in cells
                ),
            )
        )
    return "\n".join(lines)
