"""`look_up_steps`: steps per second of environments that look things up, by where they look.
Generates a table of docs/sql.md, docs/tables.md and docs/search.md.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.env_steps import Stepping
from agentrl_jax.launch.benchmarks.tables.markdown import table_header, table_row
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.storage.files import write_json

SQL, TABLES, SEARCH = (
    f"agentrl_jax.envs:agentrl/{name}-v0"
    for name in ("SqlQuestions", "TableQuestions", "SearchQuestions")
)
HEADS = ("steps a second", "this process", "one worker process", "two worker processes")
TANTIVY = "agentrl_jax.envs.search.tantivy_search:tantivy_search"
SENTENCES = "agentrl_jax.models.dense_index:sentence_search"


@dataclass(frozen=True)
class LookUpWorld:
    """A row: an environment with its options, on one of the pages."""

    page: str
    label: str
    environment: str
    options: Mapping[str, Any] = field(default_factory=dict)


WORLDS = {
    "sqlite": LookUpWorld("sql.md", "SQLite", SQL),
    "duckdb": LookUpWorld("sql.md", "DuckDB", SQL, {"dialect": "duckdb"}),
    "csv": LookUpWorld("tables.md", "`csv`", TABLES, {"source": "csv"}),
    "parquet": LookUpWorld("tables.md", "`parquet`", TABLES, {"source": "parquet"}),
    "sql": LookUpWorld("tables.md", "`sql`", TABLES, {"source": "sql"}),
    "fts5": LookUpWorld("search.md", "FTS5, 20,000 pages", SEARCH),
    "tantivy": LookUpWorld("search.md", "tantivy, 20,000 pages", SEARCH, {"retriever": TANTIVY}),
    "dense": LookUpWorld(
        "search.md", "embeddings, 200 pages", SEARCH, {"retriever": SENTENCES, "pages": 200}
    ),
}


@dataclass
class LookUpSteps:
    """Steps per second of the scripted expert's episodes, replayed; a world's are cached."""

    world: tuple[str, ...] = option(tuple(WORLDS), "Rows of the tables; may be repeated.")
    seconds: float = option(5.0, "Seconds of each measurement.", 0.01)
    num_envs: int = option(16, "Environments at once in each worker process.", 1)
    folder: str = option("benchmarks/results/look_up_steps", "The folder of the cached results.")
    pages: str = option("docs", "The folder of the pages with the tables; empty: none.")
    print_only: bool = option(False, "Measure nothing.")

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Measure the worlds that are not cached, update the pages, print the tables and report.

        Raises:
            UserError: there is no such world, or an extra that it needs is not installed.
        """
        results = {}
        for name in self.world:
            if name not in WORLDS:
                raise UserError(f"--world is one of {', '.join(WORLDS)}, not {name!r}")
            path = Path(self.folder) / f"{name}.json"
            if not path.exists() and not self.print_only:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, self.measure(WORLDS[name]))
            if path.exists():
                results[name] = json.loads(path.read_text())
        for page in dict.fromkeys(WORLDS[name].page for name in results):
            table = self.table({n: x for n, x in results.items() if WORLDS[n].page == page})
            print(table)
            if self.pages:
                doc_tables.replace_section(Path(self.pages) / page, "look-up-steps", table)
        return {"bench": "look_up_steps", "worlds": results}

    def measure(self, world: LookUpWorld) -> dict[str, Any]:
        """Steps per second, and the machine's load before."""
        load = os.getloadavg()[0]
        options = tuple(f"{name}={value!r}" for name, value in world.options.items())

        def rates(workers: int) -> tuple[float, float]:
            bench = Stepping(
                player="expert",
                workers=workers,
                num_envs=self.num_envs,
                seconds=self.seconds,
                option=options,
            )
            return bench.measure(world.environment)

        (inline, one_worker), (_, two_workers) = rates(1), rates(2)
        return {
            "inline": inline,
            "one": one_worker,
            "two": two_workers,
            "cores": len(os.sched_getaffinity(0)),
            "load": round(load, 1),
        }

    def table(self, results: Mapping[str, Mapping[str, Any]]) -> str:
        """A row for each world, and the machine."""
        rows = [
            table_row(WORLDS[name].label, *(f"{x[key]:,.0f}" for key in ("inline", "one", "two")))
            for name, x in results.items()
        ]
        cores = max(x["cores"] for x in results.values())
        loads = ", ".join(f"{x['load']:.1f}" for x in results.values())
        note = f"{cores} cores, whose load before each row was {loads}, mostly by other programs."
        return "\n".join([*table_header(*HEADS), *rows, "", note])
