"""`scaling`: communication and memory per chip of an update compiled for 1 to 256 chips."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.plans.planning import cached_report
from agentrl_jax.launch.plans.subject import PlanSpec
from agentrl_jax.launch.plans.tables import Report, scaling_table


@dataclasses.dataclass
class Scaling:
    """A cell is one plan, cached in a file. It needs libtpu but no TPU; times are at peak rates."""

    preset: str = option("qwen3_0_6b", "The name of a function of agentrl_jax.models.presets.")
    length: int = option(1024, "Tokens of a row.", 1)
    rows_per_chip: int = option(4, "Weak scaling: rows of each chip.", 1)
    total_rows: int = option(256, "Strong scaling: rows of all chips together.", 1)
    max_chips: int = option(256, "Chips at most.", 1)
    folder: str = option("benchmarks/results/scaling", "The folder of the cached cells.")
    slices: ClassVar = {
        1: "1x1",
        4: "2x2",
        8: "2x4",
        16: "4x4",
        32: "4x8",
        64: "8x8",
        128: "8x16",
        256: "16x16",
    }

    def prepare(self) -> None:
        """Uses none of this machine's devices."""

    def cells(self) -> list[tuple[str, str, PlanSpec]]:
        """(weak or strong, file name, plan) of each cell.

        Weights, gradient and moments are sharded over all chips.
        """
        return [
            (kind, f"{kind}-{chips}.json", self._plan_spec(shape, rows(chips)))
            for kind, rows in (
                ("weak", lambda chips: self.rows_per_chip * chips),
                ("strong", lambda chips: max(self.total_rows, chips)),
            )
            for chips, shape in self.slices.items()
            if chips <= self.max_chips
        ]

    def _plan_spec(self, shape: str, rows: int) -> PlanSpec:
        return PlanSpec(
            topology=f"v5e:{shape}",
            preset=self.preset,
            rows=rows,
            length=self.length,
            programs="update",
        )

    def run(self) -> dict[str, Any]:
        """Compile the missing cells, print the table and report."""
        reports: list[tuple[str, Report]] = []
        for kind, name, spec in self.cells():
            reports.append((kind, cached_report(spec, Path(self.folder) / name)))
        print(scaling_table(reports))
        cells = [
            {
                "scaling": kind,
                "chips": x["chips"],
                "fits": x["fits"],
                "command": x["command"],
                "sent": sum(x["sent"].values()),
            }
            | {
                "memory": max(program["total"] for program in x["programs"].values()),
                **x["summary"],
            }
            for kind, x in reports
        ]
        return {"bench": "scaling", "sizes": dataclasses.asdict(self), "cells": cells}
