"""What follows where a line of a run's records is damaged or missing: a stop, or it is set aside.

    metrics.jsonl            the lines that are intact
    metrics.jsonl.damaged    the damaged ones, as they were

The records are not needed to train on. A line that was set aside still counts as one that is there.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from agentrl_jax.errors import UserError
from agentrl_jax.storage import jsonl
from agentrl_jax.storage.line_counter import LineCounter

Reaction = Literal["stop", "set_aside"]
SUFFIX = ".damaged"


class DamagedLines:
    """Reacts to damaged lines of the records of a run folder.

    Args:
        reaction: what follows.
        log: called with a line about what was set aside.
    """

    def __init__(self, reaction: Reaction, log: Callable[[str], None]) -> None:
        self._reaction, self._log = reaction, log

    def repair(self, path: Path) -> None:
        """Drop a truncated last line; where they are set aside, the damaged lines too."""
        if self._reaction == "stop":
            jsonl.repair(path, self.add)
        else:
            jsonl.filter_lines(path, lambda line: True, self.add)

    def add(self, path: Path, number: int, line: bytes, reason: Exception) -> None:
        """A `jsonl.OnDamage`: append the line to the file of those that were set aside.

        Raises:
            UserError: damage stops the run.
        """
        if self._reaction == "stop":
            raise UserError(
                f"{path}, line {number} is damaged ({reason}): restore the file from a copy, or go "
                f"on with --damaged_records=set_aside, which moves the line to {path.name}{SUFFIX}"
            ) from reason
        damaged = damaged_file(path)
        earlier = damaged.read_bytes() if damaged.exists() else b""
        if line not in earlier.splitlines(keepends=True):  # else a resume was cut short here
            with open(damaged, "ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        self._log(f"{path}, line {number} is damaged ({reason}): it was moved to {damaged.name}")

    def check_counts(self, run_dir: Path, expected: Mapping[str, int], step: int) -> None:
        """Look for files of records that lost lines which were there at a checkpoint.

        Args:
            run_dir: the run folder.
            expected: how many lines each file had, with those that were set aside.
            step: of the checkpoint.

        Raises:
            UserError: one did, and damage stops the run.
        """
        for name, lines in expected.items():
            actual = LineCounter(run_dir / name).sync() + num_damaged(run_dir / name)
            if actual >= lines:
                continue
            loss = (
                f"{run_dir / name} has {actual:,} lines up to step {step}, of {lines:,} that were "
                "there with its checkpoint"
            )
            if self._reaction == "stop":
                raise UserError(
                    f"{loss}: restore the file from a copy, go on with "
                    "--damaged_records=set_aside, or start over with --fresh"
                )
            self._log(f"{loss}: the run goes on without them")


def damaged_file(path: Path) -> Path:
    """Where the damaged lines of a file are."""
    return path.with_name(path.name + SUFFIX)


def num_damaged(path: Path) -> int:
    """How many lines of a file were set aside."""
    return LineCounter(damaged_file(path)).sync()
