"""`Comparison`: a method's claim, tested against what it claims to beat; a cell is one seed of one side, kept as a small file."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.kept import Kept
from agentrl_jax.launch.sweeps.measures import Measure, final_success, first_row, last_row
from agentrl_jax.statistics import difference_interval

SIDES = ("base", "method")


@dataclass(frozen=True)
class Side:
    """A config file, with its variant and overrides."""

    config: str
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """A name for its runs."""
        said = json.dumps(sorted(self.overrides.items()))
        mark = f"-{hashlib.blake2b(said.encode(), digest_size=4).hexdigest()}" if self.overrides else ""
        return Path(self.config.replace(":", "-").replace(".py", "")).name + mark


@dataclass(frozen=True)
class Comparison:
    """Both sides over the same seeds."""

    name: str  # also of its folder
    paper: str
    claim: str  # one sentence
    base: Side
    method: Side
    seeds: tuple[int, ...] = (0, 1, 2)
    measure: Measure = final_success
    higher_is_better: bool = True

    def cells(self, runs: Path) -> Iterator[tuple[str, Cell]]:
        """(side, cell): the two sides of a seed one after the other. What several comparisons ask of is one run."""
        for seed in self.seeds:
            for name, side in zip(SIDES, (self.base, self.method)):
                yield name, Cell(side.config, side.overrides, seed, runs / f"{side.slug}-{seed}")

    def kept(self, folder: Path, runs: Path = Path()) -> Iterator[tuple[str, Kept]]:
        """(side, the cell's file)."""
        for side, cell in self.cells(runs):
            path = folder / self.name / f"{side}-{cell.seed}.json"
            yield side, Kept(path, cell, self._measured, {"measure": self.measure.name})

    def _measured(self, run_dir: Path) -> dict[str, Any]:
        """The measure, success before and after the last phase, and the seconds that it took."""
        value = float(self.measure.of(run_dir))
        if not math.isfinite(value):
            raise UserError(f"the {self.measure.name} of {run_dir} is {value}: measure something that is a number")
        summary, first = json.loads((run_dir / "summary.json").read_text()), first_row(run_dir)
        learnt = {"start": first["win_rate"] if first else None, "end": last_row(run_dir)["win_rate"]}
        return {"value": value, **learnt, "seconds": round(sum(summary["seconds"].values()), 1)}

    def found(self, folder: Path) -> dict[str, list[float | None]]:
        """Of each side its seeds' values; None: missing. Raises UserError where a file is of another cell."""
        values: dict[str, list[float | None]] = {side: [] for side in SIDES}
        for side, one in self.kept(folder):
            kept = one.read()
            values[side].append(None if kept is None else float(kept["value"]))
        return values

    def learnt(self, folder: Path) -> list[tuple[float, float]] | None:
        """Success of the method before and after its last phase, a pair a seed; None: missing, or success is not known."""
        kept = [one.read() for side, one in self.kept(folder) if side == "method"]
        pairs = [(x["start"], x["end"]) for x in kept if x is not None and x["start"] is not None and x["end"] is not None]
        return pairs if len(pairs) == len(self.seeds) else None

    def verdict(self, values: Mapping[str, list[float | None]]) -> tuple[tuple[float, float], str] | None:
        """The difference method - base, paired by seed, and what its 95 % interval says of the claim; None: cells are missing."""
        base, method = ([x for x in values[side] if x is not None] for side in SIDES)
        if not len(base) == len(method) == len(self.seeds):
            return None
        mean, half = difference_interval(method, base)
        better = mean if self.higher_is_better else -mean
        return (mean, half), "shown" if better - half > 0 else "opposite" if better + half < 0 else "not shown"
