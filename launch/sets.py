"""`DataSet`: a data set that scripted players write, and what is in it beside what was published."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl_jax import generation
from agentrl_jax.envs.lmrl.published import PUBLISHED, Published
from agentrl_jax.errors import UserError
from agentrl_jax.launch import options
from agentrl_jax.shards import Recipe, facts_of
from agentrl_jax.workers import importable

HEAD = "| set | records | turns | success | return (std) | MB | records a second |\n|---|---|---|---|---|---|---|"
EVERY = 5.0  # seconds between two lines of progress


@dataclass
class DataSet:
    """Two folders of shards: train/, and validation/ with later episodes of the same seed."""

    task: str = options.option("", f"A published data set, with its size and player: {', '.join(PUBLISHED)}.")
    environment: str = options.option("", "Or a Gymnasium id, with `module:` before it where the environment is yours.")
    option: tuple[str, ...] = options.option((), "name=value for the environment's constructor; may be repeated.")
    player: str = options.option("", "A scripted player of the environment; empty: the published data's, else mixture.")
    records: int = options.option(0, "Of train/; 0: as many as were published.", 0)
    validation: int = options.option(-1, "Records of validation/; -1: a hundredth of train/; 0: none.", -1)
    seed: int = options.option(0, "Each has other episodes.", 0)
    shards: int = options.option(0, "Files of train/; 0: one for 10,000 records.", 0)
    processes: int = options.option(2, "Side by side; the records are the same for any number.", 1)
    out: str = options.option("", "The folder; the same command again goes on in it, or prints the table of what is there.")

    def run(self) -> str:
        """Write what is missing; the table. Raises UserError where flags do not go together or the folder holds another set."""
        if not self.out:
            raise UserError("say where the data set goes with --out=data/wordle")
        train, published = self._train()
        held = max(1, train.records // 100) if self.validation < 0 else self.validation
        parts = {"train": train}
        if held:
            parts["validation"] = replace(train, records=held, first=train.records, shards=0)
        lines = [line_of(name, Path(self.out) / name, self._write(Path(self.out) / name, part)) for name, part in parts.items()]
        return "\n".join([HEAD, *lines, *([published_line(published)] if published else [])])

    def _train(self) -> tuple[Recipe, Published | None]:
        if bool(self.task) == bool(self.environment):
            raise UserError("say which data set with one of --task=wordle and --environment=agentrl/Wordle-v0")
        sizes = {"seed": self.seed, "shards": self.shards}
        if self.task:
            if self.task not in PUBLISHED:
                raise UserError(f"--task={self.task}: there is no such data set, only {', '.join(PUBLISHED)}")
            published = PUBLISHED[self.task]
            return published.recipe(self.records, self.player, options.literals(self.option), **sizes), published
        if not self.records:
            raise UserError("--environment needs --records")
        name, player = importable(self.environment), self.player or "mixture"
        return Recipe(name, player, self.records, options.literals(self.option), **sizes), None

    def _write(self, folder: Path, recipe: Recipe) -> float | None:
        """Records a second; None where all were there."""
        began, before = time.perf_counter(), sum(len(recipe.episodes(shard)) for shard in recipe.missing(folder))
        generation.write(folder, recipe, self.processes, progress(str(folder), before))
        return before / (time.perf_counter() - began) if before else None


def progress(name: str, records: int) -> Callable[[int], None]:
    """Tells now and then how far it is, on stderr."""
    began = last = time.perf_counter()
    done = 0

    def told(more: int) -> None:
        nonlocal done, last
        done, now = done + more, time.perf_counter()
        if now - last > EVERY:
            last = now
            left = (now - began) * (records - done) / done
            print(f"{name}: {done:,} of {records:,} records, {left:,.0f} s left", file=sys.stderr, flush=True)

    return told


def line_of(name: str, folder: Path, rate: float | None) -> str:
    """A folder's line of the table."""
    facts, size = facts_of(folder), sum(path.stat().st_size for path in folder.iterdir())
    known = facts["success"][facts["success"] >= 0]
    success = f"{known.mean():.2f}" if len(known) else ""
    returns = facts["return"]
    return (
        f"| {name} | {len(facts):,} | {facts['turns'].mean():.1f} | {success} | {returns.mean():.3g} ({returns.std():.3g}) "
        f"| {size / 1e6:,.1f} | {'' if rate is None else f'{rate:,.0f}'} |"
    )


def published_line(p: Published) -> str:
    return f"| published | {p.records:,} | {p.length:g} | {p.success:.2f} | {p.mean:g} ({p.std:g}) | | |"
