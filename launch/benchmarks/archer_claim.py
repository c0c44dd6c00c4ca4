"""`archer_claim`: ArCHer against PPO in environment turns. Generates tables of docs/archer.md.

agentrl-bench archer_claim --only=A-ppo          one side of a task: tuning, then its seeds
agentrl-bench archer_claim --only=A --rho        a task's rho by re-rolled games
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_jax.configs.archer_claim import TASKS, get_config
from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.archer import table
from agentrl_jax.launch.benchmarks.archer.cells import (
    ClaimCell,
    expert_path,
    load_credit,
    save_credit,
    save_expert,
    tuned_setting,
    tuning_cells,
)
from agentrl_jax.launch.benchmarks.archer.settings import SEEDS, SIDES, ClaimSide
from agentrl_jax.launch.benchmarks.archer.trainer import TurnTrainer
from agentrl_jax.launch.dataclass_flags import option


@dataclass
class ArcherClaim:
    """A cell is a seed of a side at a setting, cached in a file; cells of a task share a process.

    A side is first tuned on seeds that are never compared, then played on the others.
    """

    only: str = option("", "Pairs TASK-SIDE to run, separated by commas; empty: none.")
    seeds: int = option(len(SEEDS), "How many of the compared seeds to play.", 0)
    rho: bool = option(False, "Measure rho of the tasks named by --only alone (A,C1).")
    rerolls: int = option(8, "Games that go on from each utterance, for rho.", 2)
    runs: str = option("runs/archer_claim", "The folder of demonstrations and fine-tuned policies.")
    folder: str = option("benchmarks/results/archer_claim", "The folder of the cached cells.")
    page: str = option("docs/archer.md", "The page with the tables.")
    print_only: bool = option(False, "Run nothing.")

    def prepare(self) -> None:
        """Uses this process's devices as they are."""

    def run(self) -> dict[str, Any]:
        """Run the missing cells, update the page, print the tables and report.

        Raises:
            UserError: a pair is unknown, or a file holds the results of another config.
        """
        if self.rho:
            return self._measure_rho()
        pairs = self._pairs()
        self._write_tables()  # a damaged cache or page raises before any cell runs
        if not self.print_only:
            with ExitStack() as stack:
                trainers: dict[str, TurnTrainer] = {}
                for task, side in pairs:
                    if task not in trainers:
                        trainers[task] = stack.enter_context(self._open(task))
                    self._tune(task, side, trainers[task])
                for seed in SEEDS[: self.seeds]:  # all sides of a seed, which are compared
                    for task, side in pairs:
                        self._run_seed(task, side, seed, trainers[task])
        print("\n\n".join(self._tables().values()))
        return {"bench": "archer_claim", **table.summary(Path(self.folder))}

    def _measure_rho(self) -> dict[str, Any]:
        """Measure rho under the policy of the first tuning seed, and write it beside the cells."""
        names = [name.strip() for name in self.only.split(",") if name.strip()]
        if unknown := [name for name in names if name not in TASKS]:
            raise UserError(f"--only={self.only}: {unknown[0]!r} is no task of {', '.join(TASKS)}")
        for task in names:
            with self._open(task) as trainer:
                save_credit(task, trainer, self.rerolls, Path(self.folder))
        self._write_tables()
        print(table.tasks_table(Path(self.folder)))
        return {"bench": "archer_claim", **{x: load_credit(x, Path(self.folder)) for x in names}}

    def _open(self, task: str) -> TurnTrainer:
        import agentrl_jax.envs  # noqa: F401  registers the environments

        trainer = TurnTrainer(get_config(f"{task}-start"), Path(self.runs) / task)
        if not expert_path(task, Path(self.folder)).exists():
            save_expert(task, trainer, Path(self.folder))
        return trainer

    def _tune(self, task: str, side: ClaimSide, trainer: TurnTrainer) -> None:
        folder = Path(self.folder)
        while missing := _missing(tuning_cells(task, side, folder), folder):
            self._run_cell(missing[0], trainer)

    def _run_seed(self, task: str, side: ClaimSide, seed: int, trainer: TurnTrainer) -> None:
        folder = Path(self.folder)
        setting = tuned_setting(task, side, folder)
        if setting is None:
            raise UserError(
                f"{side.variant} takes the setting of {side.tuned_as}, which is not tuned on "
                f"{task}: run --only={task}-{side.tuned_as} first"
            )
        for cell in _missing([ClaimCell(task, side, setting, seed)], folder):
            self._run_cell(cell, trainer)

    def _run_cell(self, cell: ClaimCell, trainer: TurnTrainer) -> None:
        cell.run(trainer, Path(self.folder))
        self._write_tables()
        name = f"{cell.task}-{cell.side.variant} {cell.setting.name}, seed {cell.seed}"
        print(f"{name}: {table.cell_line(cell, Path(self.folder))}", file=sys.stderr, flush=True)

    def _pairs(self) -> list[tuple[str, ClaimSide]]:
        names = [name.strip() for name in self.only.split(",") if name.strip()]
        pairs = []
        for name in names:
            task, _, side = name.partition("-")
            if task not in TASKS or side not in SIDES:
                raise UserError(
                    f"--only={self.only}: {name!r} is no TASK-SIDE of tasks {', '.join(TASKS)} "
                    f"and sides {', '.join(SIDES)}"
                )
            pairs.append((task, SIDES[side]))
        return pairs

    def _tables(self) -> dict[str, str]:
        return {name: make(Path(self.folder)) for name, make in table.TABLES.items()}

    def _write_tables(self) -> None:
        for section, text in self._tables().items():
            doc_tables.replace_section(Path(self.page), section, text)


def _missing(cells: Sequence[ClaimCell], folder: Path) -> list[ClaimCell]:
    return [cell for cell in cells if cell.load(folder) is None]
