"""`System`: a published system, what of it exists here, and what does not."""

from dataclasses import dataclass
from typing import Literal

EnvironmentKind = Literal["own kind", "diagnostic", "none"]
STATES: dict[EnvironmentKind, str] = {
    "own kind": "built",
    "diagnostic": "mechanism only",
    "none": "absent",
}


@dataclass(frozen=True)
class System:
    """A row of the table. Names of code are in backticks."""

    name: str
    paper: str  # its number in arXiv
    pieces: str  # that exist here; empty: none of its own
    absent: str  # what does not exist here
    methods: tuple[str, ...] = ()  # of `agentrl_jax.algorithms.methods`
    configs: tuple[str, ...] = ()  # of configs/, with their variant where it is not the first
    # What the configs train on: tasks of the system's own kind with real components, or a
    # diagnostic environment in which its mechanism acts.
    kind: EnvironmentKind = "none"
    environments: tuple[str, ...] = ()  # ids without agentrl/ and version
    # Of `table.REGISTRIES`, and cells of docs/lmrl.md, docs/archer.md and docs/refuel.md.
    comparisons: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        return STATES[self.kind]
