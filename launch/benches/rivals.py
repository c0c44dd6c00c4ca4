"""A rival measured in the same run: its process repeats when it is asked to, in turn with us."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.launch.options import option

Found = dict[str, Any]  # numbers: what one repeat found; its `seconds` at least


class RivalProcess:
    """A script that says one JSON line when it is ready, then one for each line it is given."""

    def __init__(self, python: str, script: Path, flags: Sequence[str]) -> None:
        self.name = script.name
        own = ("PYTHONPATH", "XLA_FLAGS", "VIRTUAL_ENV")  # ours, and nothing to the rival
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the process
        self._process = subprocess.Popen(
            [python, str(script), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={name: value for name, value in os.environ.items() if name not in own},
        )  # fmt: skip
        try:
            self.ready = self._read()
        except UserError:
            self._errors.close()
            raise

    def repeat(self) -> Found:
        """One repeat. Raises UserError where the process has ended or says something else."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what it said last is in the error below
            self._process.stdin.write("again\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            return json.loads(line)
        except ValueError as error:
            self._end()
            self._errors.seek(0)
            said = [text.strip() for text in self._errors.read().splitlines() if text.strip()] or ["nothing on standard error"]
            raise UserError(f"the rival's script {self.name} ended or wrote no JSON line; it said: {said[-1][:300]}") from error

    def close(self) -> None:
        self._end()
        self._errors.close()

    def _end(self) -> None:
        """Wait for the process, which ends with its input."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass
class Against:
    """Whom we are measured against, if anybody, and how often."""

    repeats: int = option(5, "Timed repeats of each side; one more of each warms up.", 1)
    rival: str = option("", "tunix or trl; empty: nobody.")
    rival_python: str = option("", "The interpreter of the rival's virtual environment.")
    rival_script: str = option("", "The rival's script; by default the one in benchmarks/rivals below the working directory.")
    scripts: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # of each rival: the file in benchmarks/rivals and flags of its own

    @contextlib.contextmanager
    def opened_rival(self, flags: Sequence[str]) -> Iterator[RivalProcess | None]:
        """The rival's process, warmed up; None without a rival. Raises UserError where a part of it is missing."""
        if not self.rival:
            yield None
            return
        if self.rival not in self.scripts:
            raise UserError(f"--rival={self.rival} is nobody this bench knows: say {' or '.join(self.scripts)}")
        file, *own = self.scripts[self.rival]
        script = Path(self.rival_script or Path("benchmarks/rivals") / file)
        if not script.is_file():
            raise UserError(f"there is no script {script}: run from the repository, or say where it is with --rival_script=...")
        if not os.access(self.rival_python, os.X_OK) or Path(self.rival_python).is_dir():
            raise UserError(f"--rival_python={self.rival_python} is no interpreter: docs/engine.md tells how to install {self.rival}")
        rival = RivalProcess(self.rival_python, script, [*own, *flags])
        try:
            yield rival
        finally:
            rival.close()


def interleaved(ours: Callable[[], Found], rival: RivalProcess | None, repeats: int) -> tuple[list[Found], list[Found]]:
    """Repeats of both sides in turn, whoever begins changing each time; the first of each warms up and is dropped."""
    mine: list[Found] = []
    theirs: list[Found] = []
    for i in range(repeats + 1):
        turn = [lambda: mine.append(ours())]
        if rival is not None:
            turn.append(lambda: theirs.append(rival.repeat()))
        for act in turn if i % 2 else reversed(turn):
            act()
    return mine[1:], theirs[1:]


def quartiles(values: Sequence[int | float]) -> dict[str, float]:
    low, median, high = np.quantile(np.asarray(values, np.float64), [0.25, 0.5, 0.75])
    return {"low": significant(low), "median": significant(median), "high": significant(high)}


def significant(value: float) -> float:
    """Five digits of it."""
    return float(f"{value:.5g}")


def with_rates(found: Found) -> Found:
    """Beside every `..seconds`, sampled tokens a second."""
    rates = {
        name.replace("seconds", "tokens_per_second"): found["sampled_tokens"] / value for name, value in found.items() if "seconds" in name
    }
    return found | rates


def compared(ours: Sequence[Found], theirs: Sequence[Found], pairs: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Quartiles of either side, and of the paired ratios: how many times as fast we were, in time and in tokens a second.

    What both sides have is compared, and each of `pairs`: a name of the rival's -> a name of ours.
    """
    mine, others = [with_rates(x) for x in ours], [with_rates(x) for x in theirs]
    report: dict[str, Any] = {"ours": {name: quartiles([x[name] for x in mine]) for name in mine[0]}}
    if not others:
        return report
    report["rival"] = {name: quartiles([x[name] for x in others]) for name in others[0]}
    report["ratio"] = {}
    for their, my in ({name: name for name in mine[0] if name in others[0]} | dict(pairs or {})).items():
        if "second" in my:
            faster = [a[my] / b[their] if "per_second" in my else b[their] / a[my] for a, b in zip(mine, others)]
            report["ratio"][their] = quartiles(faster)
    return report
