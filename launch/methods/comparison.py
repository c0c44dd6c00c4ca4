"""`Comparison`: a method's claim, tested against what it claims to beat; a cell is one seed of one side, kept as a small file."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import in_shell
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.measures import Measure, final_success, first_row, last_row
from agentrl_jax.run import write_json
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

    def path(self, folder: Path, side: str, cell: Cell) -> Path:
        """Where a cell is kept."""
        return folder / self.name / f"{side}-{cell.seed}.json"

    def keep(self, folder: Path, side: str, cell: Cell) -> None:
        """Write what a finished cell measured, success before and after the last phase, and the seconds that it took.

        Raises UserError where its run cannot be measured.
        """
        value = float(self.measure.of(cell.run_dir))
        if not math.isfinite(value):
            raise UserError(f"the {self.measure.name} of {cell.run_dir} is {value}: measure something that is a number")
        path = self.path(folder, side, cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        summary = json.loads((cell.run_dir / "summary.json").read_text())
        first = first_row(cell.run_dir)
        learnt = {"start": first["win_rate"] if first else None, "end": last_row(cell.run_dir)["win_rate"]}
        write_json(path, {**self._identity(cell), "value": value, **learnt, "seconds": round(sum(summary["seconds"].values()), 1)})

    def found(self, folder: Path) -> dict[str, list[float | None]]:
        """Of each side its seeds' values; None: missing. Raises UserError where a file is of another cell."""
        values: dict[str, list[float | None]] = {side: [] for side in SIDES}
        for side, cell in self.cells(Path()):
            kept = self._kept(self.path(folder, side, cell), cell)
            values[side].append(None if kept is None else kept["value"])
        return values

    def learnt(self, folder: Path) -> list[tuple[float, float]] | None:
        """Success of the method before and after its last phase, a pair a seed; None: missing, or success is not known."""
        kept = [self._kept(self.path(folder, side, cell), cell) for side, cell in self.cells(Path()) if side == "method"]
        pairs = [(x["start"], x["end"]) for x in kept if x is not None and x["start"] is not None and x["end"] is not None]
        return pairs if len(pairs) == len(self.seeds) else None

    def _kept(self, path: Path, cell: Cell) -> dict[str, Any] | None:
        if not path.exists():
            return None
        try:
            kept = json.loads(path.read_text())
            identity = {name: kept[name] for name in self._identity(cell)}
            numbers = {"value": float(kept["value"]), "start": kept["start"], "end": kept["end"]}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{path} is damaged: delete it to run it anew") from error
        if identity != self._identity(cell):
            raise UserError(f"{path} holds the {kept['measure']} of {kept['command']}: delete it to run what is declared now")
        return numbers

    def _identity(self, cell: Cell) -> dict[str, str]:
        return {"command": in_shell(["agentrl-train", *cell.flags]), "measure": self.measure.name}

    def verdict(self, values: Mapping[str, list[float | None]]) -> tuple[tuple[float, float], str] | None:
        """The difference method - base, paired by seed, and what its 95 % interval says of the claim; None: cells are missing."""
        base, method = ([x for x in values[side] if x is not None] for side in SIDES)
        if not len(base) == len(method) == len(self.seeds):
            return None
        mean, half = difference_interval(method, base)
        better = mean if self.higher_is_better else -mean
        return (mean, half), "shown" if better - half > 0 else "opposite" if better + half < 0 else "not shown"
