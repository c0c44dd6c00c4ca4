"""The tables of docs/archer.md and docs/refuel.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.launch.boards.entries import Entry, Found, imitated, measured
from agentrl_jax.launch.boards.markdown import head, line, number
from agentrl_jax.launch.sweeps.measures import values_of
from agentrl_jax.launch.sweeps.table import MISSING

THREE = (0, 1, 2)
ONE = (0,)
TASKS = {"subset": THREE, "questions": ONE, "city": ONE, "detective": ONE, "shop": ONE}
ONLINE = {"filtered": "filtered BC", "online_filtered": "online filtered BC", "chai": "CHAI", "ppo": "PPO", "archer": "ArCHer"}
OFFLINE = {  # on Twenty Questions; published: all its words, 5 seeds
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
ABLATED = {"subset": tuple(ABLATIONS), "city": ("archer", "baseline")}  # what a baseline of tokens is for is long utterances
DIALOGUE = ("refuel", "multi_turn_mixed", "last_turn", "last_turn_mixed", "last_turn_offline", "refuel_dpo")
TURNS = (1, 2, 3, 4, 5)
TWICE = {"refuel_twice": "refuel", "last_turn_twice": "last_turn"}
SMOOTH = 4  # iterations of a curve that are averaged


def learning(run_dir: Path) -> dict[str, Any]:
    """And how the return grew with what was played: (turns so far, mean return) after each iteration."""
    turns = np.cumsum(values_of(run_dir, "rollout/turns_played")).tolist()
    return {**measured(run_dir), "curve": [*zip(turns, values_of(run_dir, "rollout/return"))]}


def played(run_dir: Path) -> dict[str, Any]:
    """And the mean return of what each iteration played, by the policy of before it."""
    return {**measured(run_dir), "played": values_of(run_dir, "rollout/return")}


def _entries() -> dict[tuple[str, str], Entry]:
    found: dict[tuple[str, str], Entry] = {}
    methods = dict.fromkeys(TASKS, ()) | ABLATED
    methods["subset"] += tuple(OFFLINE)
    for task, seeds in TASKS.items():
        for method in dict.fromkeys((*ONLINE, *methods[task])):
            measure = learning if method in ("ppo", "archer") else measured
            found[task, method] = Entry(task, method, f"configs/archer.py:{task}-{method}", seeds, measure)
    for turns in TURNS:
        for method in DIALOGUE:
            task, overrides = f"turns_{turns}", {"environment.options.horizon": str(turns)}
            found[task, method] = Entry(task, method, f"configs/dialogue_refuel.py:{method}", THREE, overrides=overrides)
    for method in TWICE:
        found["iterations", method] = Entry("iterations", method, f"configs/dialogue_refuel.py:{method}", THREE, played)
    return found


ENTRIES = _entries()


def online_table(folder: Path) -> str:
    """Mean returns after the last iteration."""
    lines = head("task", "BC", *ONLINE.values())
    for task in TASKS:
        cells = [ENTRIES[task, method].found(folder) for method in ONLINE]
        lines.append(line(task, *(number(x, "return", ".2f") for x in (imitated(cells[-1]), *cells))))
    return "\n".join(lines)


def samples_table(folder: Path) -> str:
    """Turns played until PPO's best and until ArCHer is as good, of curves that are averaged over seeds and `SMOOTH` iterations."""
    lines = head("task", "PPO's best return", "turns of PPO", "turns of ArCHer", "ratio")
    for task in TASKS:
        ppo, archer = (smooth(ENTRIES[task, method].found(folder)) for method in ("ppo", "archer"))
        lines.append(line(task, *([MISSING] * 4 if ppo is None or archer is None else compared(ppo, archer))))
    return "\n".join(lines)


def smooth(cells: Found) -> np.ndarray | None:
    """(turns so far, mean return), [iterations, 2]; None: cells are missing."""
    if any(cell is None for cell in cells):
        return None
    mean = np.mean([cell["curve"] for cell in cells if cell is not None], axis=0)
    kernel = np.ones(SMOOTH) / SMOOTH
    return np.stack([mean[SMOOTH - 1 :, 0], np.convolve(mean[:, 1], kernel, "valid")], axis=1)


def compared(ppo: np.ndarray, archer: np.ndarray) -> list[str]:
    """Where the first curve is highest, and where the second is first as high."""
    turns, best = ppo[int(np.argmax(ppo[:, 1]))]
    reached = archer[archer[:, 1] >= best, 0]
    if not len(reached):
        return [f"{best:.2f}", f"{turns:,.0f}", f"not within {archer[-1, 0]:,.0f} (at best {archer[:, 1].max():.2f})", "-"]
    return [f"{best:.2f}", f"{turns:,.0f}", f"{reached[0]:,.0f}", f"{turns / reached[0]:.1f}"]


def offline_table(folder: Path) -> str:
    """Mean returns after training on demonstrations alone, and the published ones."""
    cells = {method: ENTRIES["subset", method].found(folder) for method in OFFLINE}
    plain = imitated(cells["iql_awr"])
    lines = head("", "BC", *(name for name, _ in OFFLINE.values()))
    lines.append(line("ten words, here", *(number(x, "return", ".2f") for x in (plain, *cells.values()))))
    lines.append(line("all words, published", "-16.8", *(str(published) for _, published in OFFLINE.values())))
    return "\n".join(lines)


def ablations_table(folder: Path) -> str:
    """Mean returns with one thing changed; `-`: not of this task."""
    return _returns([*ABLATED], ABLATIONS, folder)


def turns_table(folder: Path) -> str:
    """Mean returns of dialogues of so many turns."""
    return _returns([f"turns_{turns}" for turns in TURNS], {method: method for method in DIALOGUE}, folder)


def iterations_table(folder: Path) -> str:
    """Mean returns before, between and after two iterations."""
    lines = head("", "fine-tuned", "one iteration", "two iterations")
    for method, label in TWICE.items():
        cells = ENTRIES["iterations", method].found(folder)
        between = [cell and {"return": cell["played"][1]} for cell in cells]
        lines.append(line(label, *(number(x, "return", ".2f") for x in (imitated(cells), between, cells))))
    return "\n".join(lines)


def _returns(tasks: Sequence[str], methods: dict[str, str], folder: Path) -> str:
    lines = head("", *methods.values())
    for task in tasks:
        found = (ENTRIES.get((task, method)) for method in methods)
        lines.append(line(task, *("-" if entry is None else number(entry.found(folder), "return", ".2f") for entry in found)))
    return "\n".join(lines)
