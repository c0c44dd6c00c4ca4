"""Comparison with another library, in a process of its own whose repeats alternate with ours."""

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
from agentrl_jax.launch.dataclass_flags import option

Measurement = dict[str, Any]  # the numbers of one repeat, at least `seconds`


class RivalProcess:
    """A script that prints a JSON line when it is ready, and one for each line of its input."""

    def __init__(self, python: str, script: Path, flags: Sequence[str]) -> None:
        self.name = script.name
        dropped = ("PYTHONPATH", "XLA_FLAGS", "VIRTUAL_ENV")  # settings of our own environment
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the process
        self._process = subprocess.Popen(
            [python, str(script), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={name: value for name, value in os.environ.items() if name not in dropped},
        )
        try:
            self.ready_message = self._read_message()
        except UserError:
            self._errors.close()
            raise

    def repeat(self) -> Measurement:
        """One repeat. Raises UserError where the process has ended or prints no JSON."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its last output is in the error below
            self._process.stdin.write("again\n")
            self._process.stdin.flush()
        return self._read_message()

    def _read_message(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            return json.loads(line)
        except ValueError as error:
            self._terminate()
            self._errors.seek(0)
            output = [
                text.strip() for text in self._errors.read().splitlines() if text.strip()
            ] or ["nothing on standard error"]
            raise UserError(
                f"the rival's script {self.name} ended or wrote no JSON line; it printed: "
                f"{output[-1][:300]}"
            ) from error

    def close(self) -> None:
        self._terminate()
        self._errors.close()

    def _terminate(self) -> None:
        """Wait for the process, which ends when its input is closed."""
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
class RivalBench:
    """The flags of a comparison with another library."""

    repeats: int = option(5, "Timed repeats of each side, after one more to warm up.", 1)
    rival: str = option("", "tunix or trl; empty: none.")
    rival_python: str = option("", "The interpreter of the rival's virtual environment.")
    rival_script: str = option(
        "",
        "The rival's script; by default the one in benchmarks/rivals below the working directory.",
    )
    # of each rival: its file in benchmarks/rivals and further flags
    scripts: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @contextlib.contextmanager
    def open_rival(self, flags: Sequence[str]) -> Iterator[RivalProcess | None]:
        """The rival's process, ready to measure; None without a rival.

        Raises:
            UserError: the rival is unknown, or its script or interpreter is missing.
        """
        if not self.rival:
            yield None
            return
        if self.rival not in self.scripts:
            raise UserError(
                f"--rival={self.rival} is unknown to this benchmark, which has "
                f"{' or '.join(self.scripts)}"
            )
        file, *rival_flags = self.scripts[self.rival]
        script = Path(self.rival_script or Path("benchmarks/rivals") / file)
        if not script.is_file():
            raise UserError(
                f"there is no script {script}: run from the repository, or give it with "
                "--rival_script=..."
            )
        if not os.access(self.rival_python, os.X_OK) or Path(self.rival_python).is_dir():
            raise UserError(
                f"--rival_python={self.rival_python} is no interpreter: docs/engine.md describes "
                f"how to install {self.rival}"
            )
        rival = RivalProcess(self.rival_python, script, [*rival_flags, *flags])
        try:
            yield rival
        finally:
            rival.close()


def run_interleaved(
    repeat: Callable[[], Measurement], rival: RivalProcess | None, repeats: int
) -> tuple[list[Measurement], list[Measurement]]:
    """Alternate repeats of both sides, changing which goes first; drop each side's first."""
    ours: list[Measurement] = []
    theirs: list[Measurement] = []
    for i in range(repeats + 1):
        calls = [lambda: ours.append(repeat())]
        if rival is not None:
            calls.append(lambda: theirs.append(rival.repeat()))
        for call in calls if i % 2 else reversed(calls):
            call()
    return ours[1:], theirs[1:]


def quartiles(values: Sequence[int | float]) -> dict[str, float]:
    low, median, high = np.quantile(np.asarray(values, np.float64), [0.25, 0.5, 0.75])
    return {
        "low": round_significant(low),
        "median": round_significant(median),
        "high": round_significant(high),
    }


def round_significant(value: float) -> float:
    """Rounded to five significant digits."""
    return float(f"{value:.5g}")


def add_rates(measurement: Measurement) -> Measurement:
    """Add sampled tokens per second for every `..seconds`."""
    rates = {
        name.replace("seconds", "tokens_per_second"): measurement["sampled_tokens"] / value
        for name, value in measurement.items()
        if "seconds" in name
    }
    return measurement | rates


def compare_measurements(
    library_measurements: Sequence[Measurement],
    rival_measurements: Sequence[Measurement],
    name_pairs: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Quartiles of both sides, and of the paired speedups over the rival.

    Numbers of the same name are compared, and each of `name_pairs`: the rival's name -> ours.
    """
    ours, theirs = (
        [add_rates(x) for x in library_measurements],
        [add_rates(x) for x in rival_measurements],
    )
    report: dict[str, Any] = {
        "ours": {name: quartiles([x[name] for x in ours]) for name in ours[0]}
    }
    if not theirs:
        return report
    report["rival"] = {name: quartiles([x[name] for x in theirs]) for name in theirs[0]}
    report["ratio"] = {}
    same_names = {name: name for name in ours[0] if name in theirs[0]}
    for rival_name, our_name in (same_names | dict(name_pairs or {})).items():
        if "second" in our_name:
            speedups = [
                a[our_name] / b[rival_name]
                if "per_second" in our_name
                else b[rival_name] / a[our_name]
                for a, b in zip(ours, theirs)
            ]
            report["ratio"][rival_name] = quartiles(speedups)
    return report
