"""`scaling`: bytes moved and memory of a chip in one update over 1 to 256 chips, from programs compiled for them."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

from agentrl_jax.launch.options import option
from agentrl_jax.launch.plans.planning import kept_report
from agentrl_jax.launch.plans.subject import Subject
from agentrl_jax.launch.plans.tables import Report, scaling_table


@dataclasses.dataclass
class Scaling:
    """No TPU is needed, only libtpu. A cell is one plan, kept in a file, and not compiled again; times are at peak rates."""

    preset: str = option("qwen3_0_6b", "The name of a function of agentrl_jax.models.presets.")
    length: int = option(1024, "Tokens of a row.", 1)
    each: int = option(4, "Weak scaling: rows of each chip.", 1)
    whole: int = option(256, "Strong scaling: rows of all chips together.", 1)
    largest: int = option(256, "Chips at most.", 1)
    folder: str = option("benchmarks/results/scaling", "Where the cells are kept.")
    slices: ClassVar = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}

    def prepare(self) -> None:
        """Nothing runs on this machine's devices."""

    def cells(self) -> list[tuple[str, str, Subject]]:
        """Of each: weak or strong, the file's name, what is compiled; weights, gradient and moments are split over all chips."""
        return [
            (kind, f"{kind}-{chips}.json", self._subject(shape, rows(chips)))
            for kind, rows in (("weak", lambda chips: self.each * chips), ("strong", lambda chips: max(self.whole, chips)))
            for chips, shape in self.slices.items()
            if chips <= self.largest
        ]

    def _subject(self, shape: str, rows: int) -> Subject:
        return Subject(topology=f"v5e:{shape}", preset=self.preset, rows=rows, length=self.length, programs="update")

    def run(self) -> dict[str, Any]:
        """Compile what is missing, print the table, and report."""
        found: list[tuple[str, Report]] = []
        for kind, name, subject in self.cells():
            found.append((kind, kept_report(subject, Path(self.folder) / name)))
        print(scaling_table(found))
        cells = [
            {"scaling": kind, "chips": x["chips"], "fits": x["fits"], "command": x["command"], "sent": sum(x["sent"].values())}
            | {"memory": max(program["total"] for program in x["programs"].values()), **x["summary"]}
            for kind, x in found
        ]
        return {"bench": "scaling", "sizes": dataclasses.asdict(self), "cells": cells}
