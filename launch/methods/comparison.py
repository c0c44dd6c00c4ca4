"""`Comparison`: a method's claim, tested against what it claims to beat; a cell is one seed of one side, kept as a small file."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentrl_jax.errors import UserError
from agentrl_jax.launch.calls import in_shell
from agentrl_jax.launch.sweeps.cells import Cell
from agentrl_jax.launch.sweeps.measures import Measure, final_success
from agentrl_jax.run import write_json
from agentrl_jax.statistics import difference_interval

SIDES = ("base", "method")


@dataclass(frozen=True)
class Side:
    """A config file, with its variant and overrides."""

    config: str
    overrides: Mapping[str, str] = field(default_factory=dict)


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
        """(side, cell): the two sides of a seed one after the other."""
        for seed in self.seeds:
            for name, side in zip(SIDES, (self.base, self.method)):
                yield name, Cell(side.config, side.overrides, seed, runs / self.name / f"{name}-{seed}")

    def path(self, folder: Path, cell: Cell) -> Path:
        """Where a cell is kept."""
        return folder / self.name / f"{cell.run_dir.name}.json"

    def keep(self, folder: Path, cell: Cell) -> None:
        """Write what a finished cell measured, and the seconds it took. Raises UserError where its run cannot be measured."""
        value = float(self.measure.of(cell.run_dir))
        if not math.isfinite(value):
            raise UserError(f"the {self.measure.name} of {cell.run_dir} is {value}: measure something that is a number")
        path = self.path(folder, cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        seconds = json.loads((cell.run_dir / "summary.json").read_text())["seconds"]
        write_json(path, {**self._identity(cell), "value": value, "seconds": round(sum(seconds.values()), 1)})

    def found(self, folder: Path) -> dict[str, list[float | None]]:
        """Of each side its seeds' values; None: missing. Raises UserError where a file is of another cell."""
        values: dict[str, list[float | None]] = {side: [] for side in SIDES}
        for side, cell in self.cells(Path()):
            values[side].append(self._kept(self.path(folder, cell), cell))
        return values

    def _kept(self, path: Path, cell: Cell) -> float | None:
        if not path.exists():
            return None
        try:
            kept = json.loads(path.read_text())
            value, identity = float(kept["value"]), {name: kept[name] for name in self._identity(cell)}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UserError(f"{path} is damaged: delete it to run it anew") from error
        if identity != self._identity(cell):
            raise UserError(f"{path} holds the {kept['measure']} of {kept['command']}: delete it to run what is declared now")
        return value

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
