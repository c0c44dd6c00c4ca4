"""`Comparison`: a method's claim, tested against its baseline.

A cell is one seed of one side; its results are cached in a small file.
"""

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.benchmarks.claims.measures import training_means
from agentrl_jax.launch.sweeps.cached_cells import CachedCell
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.measures import Measure, final_success, last_row, start_row
from agentrl_jax.storage.run_folder import read_summary

SIDES = ("base", "method")
TEN_SEEDS = tuple(range(10))
SECOND_TEN = tuple(range(10, 20))


@dataclass(frozen=True)
class Side:
    """A config file, with its variant and overrides, and the phase that is measured."""

    config: str
    overrides: Mapping[str, str] = field(default_factory=dict)
    phase: str = ""  # empty: the last one

    @property
    def slug(self) -> str:
        """The name of its run folders."""
        overrides = json.dumps(sorted(self.overrides.items()))
        suffix = (
            f"-{hashlib.blake2b(overrides.encode(), digest_size=4).hexdigest()}"
            if self.overrides
            else ""
        )
        return Path(self.config.replace(":", "-").replace(".py", "")).name + suffix


@dataclass(frozen=True)
class Comparison:
    """Both sides over the same seeds.

    Raises:
        UserError: a seed by which the settings were chosen is compared.
    """

    name: str  # and name of its folder
    paper: str
    claim: str  # one sentence
    base: Side
    method: Side
    seeds: tuple[int, ...] = (0, 1, 2)
    measure: Measure = final_success
    higher_is_better: bool = True
    tuning_seeds: tuple[int, ...] = ()  # by which its settings were chosen
    by_construction: bool = False  # it could come out in no other way, and is not tested

    def __post_init__(self) -> None:
        if both := set(self.seeds) & set(self.tuning_seeds):
            raise UserError(
                f"{self.name}: seed {min(both)} chose the settings, so it cannot be compared"
            )

    def cells(self, runs: Path) -> Iterator[tuple[str, Cell]]:
        """(side, cell): both sides of a seed, then the next seed.

        Comparisons that share a side share its run folders.
        """
        for seed in self.seeds:
            for name, side in zip(SIDES, (self.base, self.method)):
                yield name, Cell(side.config, side.overrides, seed, runs / f"{side.slug}-{seed}")

    def cached_cells(self, folder: Path, runs: Path = Path()) -> Iterator[tuple[str, CachedCell]]:
        """(side, cell with its file), in the order of `cells`."""
        for side, cell in self.cells(runs):
            path = folder / self.name / f"{side}-{cell.seed}.json"
            phase = (self.base if side == "base" else self.method).phase
            identity = {"measure": self.measure.name, **({"phase": phase} if phase else {})}
            measure = functools.partial(self._measure_run, phase=phase)
            yield side, CachedCell(path, cell, measure, identity)

    def _measure_run(self, run_dir: Path, phase: str) -> dict[str, Any]:
        """The measure, success before and after the phase, how it trained, and the seconds of the
        run.
        """
        value = float(self.measure.compute(run_dir, phase))
        if not math.isfinite(value):
            raise UserError(
                f"the {self.measure.name} of {run_dir} is {value}: use a measure that is finite"
            )
        summary, start = read_summary(run_dir), start_row(run_dir, phase)
        learnt = {
            "start": start["win_rate"] if start else None,
            "end": last_row(run_dir, phase)["win_rate"],
        }
        learnt["training"] = training_means(run_dir, phase)
        return {"value": value, **learnt, "seconds": round(sum(summary["seconds"].values()), 1)}

    def load_results(self, folder: Path) -> dict[str, list[dict[str, Any] | None]]:
        """The results of each side's seeds; None: missing.

        Raises:
            UserError: a file holds the results of another cell or another config.
        """
        results: dict[str, list[dict[str, Any] | None]] = {side: [] for side in SIDES}
        for side, cell in self.cached_cells(folder):
            results[side].append(cell.load())
        return results

    def load_values(self, folder: Path) -> dict[str, list[float | None]]:
        """The values of each side's seeds; None: missing."""
        return {
            side: [None if cell is None else float(cell["value"]) for cell in cells]
            for side, cells in self.load_results(folder).items()
        }

    def success_before_after(self, folder: Path) -> list[tuple[float, float]] | None:
        """The method's success before and after its last phase, a pair per seed.

        None where cells are missing or the environment reports no success.
        """
        pairs = [
            (x["start"], x["end"])
            for x in self.load_results(folder)["method"]
            if x is not None and x["start"] is not None and x["end"] is not None
        ]
        return pairs if len(pairs) == len(self.seeds) else None


def variant_comparison(
    name: str,
    config: str,
    paper: str,
    claim: str,
    overrides: Mapping[str, str] | None = None,
    **options: Any,
) -> Comparison:
    """A config against its own variant `base`, with the same overrides."""
    path, same = f"configs/{config}.py", dict(overrides or {})
    return Comparison(name, paper, claim, Side(f"{path}:base", same), Side(path, same), **options)


def paired_comparison(
    name: str,
    config: str,
    paper: str,
    claim: str,
    overrides: Mapping[str, str] | None = None,
    **options: Any,
) -> Comparison:
    """The phases `base` and `method` of a config's variant `pair`, which start from the same
    fine-tuned weights in one run (`configs.small.from_one_start`).
    """
    path, same = f"configs/{config}.py:pair", dict(overrides or {})
    base, method = (Side(path, same, phase) for phase in SIDES)
    return Comparison(name, paper, claim, base, method, **options)


def on_both_sides(overrides: Mapping[str, str]) -> dict[str, str]:
    """Overrides of a phase, for the phases of both sides of a `paired_comparison`."""
    return {f"phases.{side}.{field}": value for side in SIDES for field, value in overrides.items()}
