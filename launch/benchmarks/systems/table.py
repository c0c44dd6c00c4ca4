"""The table of docs/systems.md, and the command that writes it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.claims.code_registry import CODE_COMPARISONS
from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.look_up_registry import LOOK_UP_COMPARISONS
from agentrl_jax.launch.benchmarks.claims.registry import COMPARISONS
from agentrl_jax.launch.benchmarks.claims.verdicts import Verdict, load_verdicts
from agentrl_jax.launch.benchmarks.claims.vision_registry import VISION_COMPARISONS
from agentrl_jax.launch.benchmarks.claims.world_registry import WORLD_COMPARISONS
from agentrl_jax.launch.benchmarks.systems.absent_systems import ABSENT_SYSTEMS
from agentrl_jax.launch.benchmarks.systems.code_systems import CODE_SYSTEMS
from agentrl_jax.launch.benchmarks.systems.image_systems import IMAGE_SYSTEMS
from agentrl_jax.launch.benchmarks.systems.search_systems import SEARCH_SYSTEMS
from agentrl_jax.launch.benchmarks.systems.system import STATES, System
from agentrl_jax.launch.benchmarks.systems.text_systems import TEXT_SYSTEMS
from agentrl_jax.launch.benchmarks.systems.visual_systems import VISUAL_SYSTEMS
from agentrl_jax.launch.benchmarks.tables import archer_refuel, lmrl_gym
from agentrl_jax.launch.benchmarks.tables.entries import TableEntry
from agentrl_jax.launch.benchmarks.tables.markdown import format_mean, table_header, table_row
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.launch.sweeps.table import MISSING, format_mean_interval

SYSTEMS = (
    *TEXT_SYSTEMS,
    *CODE_SYSTEMS,
    *SEARCH_SYSTEMS,
    *VISUAL_SYSTEMS,
    *IMAGE_SYSTEMS,
    *ABSENT_SYSTEMS,
)
COLUMNS = ("system", "state", "pieces", "config", "environment", "figure", "absent")
ENTRIES: dict[str, dict[tuple[str, str], TableEntry]] = {
    "lmrl": lmrl_gym.ENTRIES,
    "hierarchical": archer_refuel.ENTRIES,
}
# By the folder of their cells; each is a table of its own, for which verdicts are corrected.
REGISTRIES: dict[str, tuple[Comparison, ...]] = {
    "methods": COMPARISONS,
    "code": CODE_COMPARISONS,
    "look_up": LOOK_UP_COMPARISONS,
    "vision": VISION_COMPARISONS,
    "world": WORLD_COMPARISONS,
}
NONE = "-"


def systems_table(results: Path) -> str:
    """A row per system, with figures from the cells cached in the folder of results."""
    verdicts: dict[str, Verdict] = {}
    for folder, comparisons in REGISTRIES.items():
        verdicts |= load_verdicts(comparisons, results / folder)
    rows = (_row(system, results, verdicts) for system in SYSTEMS)
    return "\n".join([*table_header(*COLUMNS), *rows])


def counts_sentence() -> str:
    """How many systems are in each state."""
    counts = Counter(system.state for system in SYSTEMS)
    built, mechanisms, absent = (counts[state] for state in STATES.values())
    return (
        f"Of {len(SYSTEMS)} systems {built} are built, {mechanisms} are mechanisms on a diagnostic "
        f"environment, and {absent} are absent."
    )


def _row(system: System, results: Path, verdicts: Mapping[str, Verdict]) -> str:
    kind = f"{system.kind}: {', '.join(system.environments)}" if system.environments else NONE
    return table_row(
        f"{system.name} ({system.paper})",
        system.state,
        system.pieces or NONE,
        _joined(f"`{config}`" for config in system.configs),
        kind,
        _figure(system, results, verdicts),
        system.absent,
    )


def _joined(parts: Iterable[str]) -> str:
    return "; ".join(parts) or NONE


def _figure(system: System, results: Path, verdicts: Mapping[str, Verdict]) -> str:
    """Differences of comparisons with their verdicts, and returns of cells."""
    figures = [
        *(_comparison_figure(name, verdicts.get(name)) for name in system.comparisons),
        *(_cell_figure(name, results) for name in system.cells),
    ]
    return _joined(figures) if figures or not system.configs else "not measured"


def _comparison_figure(name: str, verdict: Verdict | None) -> str:
    if verdict is None:
        return f"{name} {MISSING}"
    difference = format_mean_interval((verdict.mean, verdict.half_width), "+.3g")
    return f"{name} {difference}, {verdict.text}"


def _cell_figure(name: str, results: Path) -> str:
    bench, _, cell = name.partition("/")
    task, _, method = cell.partition("-")
    cells = ENTRIES[bench][task, method].load_results(results / bench)
    return f"{cell} return {format_mean(cells, 'return', '.2f')}"


@dataclass
class SystemsTable:
    """`systems`: writes the table of docs/systems.md; runs nothing."""

    folder: str = option("benchmarks/results", "The folder of the cached cells.")
    page: str = option("docs/systems.md", "The page with the table.")

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Write the page and report how many systems are in each state."""
        doc_tables.replace_section(Path(self.page), "counts", counts_sentence())
        doc_tables.replace_section(Path(self.page), "systems", systems_table(Path(self.folder)))
        counts = Counter(system.state for system in SYSTEMS)
        return {"bench": "systems", **counts}
