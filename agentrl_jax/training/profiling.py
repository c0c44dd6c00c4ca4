"""`StepProfiler`: a trace of some steps of a phase by `jax.profiler`."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jax

from agentrl_jax.errors import UserError

FOLDER = "profile"  # of the run folder; a folder for each phase is in it


@dataclass(frozen=True)
class ProfiledSteps:
    """The steps `first` to `last` of a phase, both among them."""

    first: int
    last: int
    phase: str = ""  # empty: of every phase


class StepProfiler:
    """Traces the profiled steps of a phase into a folder; the trace ends with the context."""

    def __init__(self, profiled: ProfiledSteps | None, folder: Path, phase: str) -> None:
        self._steps = range(0)
        if profiled is not None and profiled.phase in ("", phase):
            self._steps = range(profiled.first, profiled.last + 1)
        self._folder, self._phase, self._is_tracing = folder, phase, False

    @contextlib.contextmanager
    def around(self, step: int) -> Iterator[None]:
        """Around a step; the trace goes on until the last of the profiled steps is over."""
        if step in self._steps and not self._is_tracing:
            jax.profiler.start_trace(self._folder)
            self._is_tracing = True
        with jax.profiler.StepTraceAnnotation(self._phase, step_num=step):
            yield
        if step + 1 not in self._steps:
            self._stop()

    def _stop(self) -> None:
        if self._is_tracing:
            self._is_tracing = False
            jax.block_until_ready(jax.live_arrays())  # what the step has dispatched
            jax.profiler.stop_trace()

    def __enter__(self) -> "StepProfiler":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()


def parse_profiled_steps(text: str) -> ProfiledSteps | None:
    """ "10:12" and "rl:10:12"; None for "". Raises UserError for anything else."""
    if not text:
        return None
    *phase, first, last = text.split(":") if text.count(":") in (1, 2) else ("", "", "")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise UserError(
            f"--profile_steps={text} names no steps: write first:last, or phase:first:last"
        )
    return ProfiledSteps(int(first), int(last), phase[0] if phase else "")
