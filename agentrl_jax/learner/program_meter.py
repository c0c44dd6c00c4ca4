"""`ProgramMeter`: FLOPs and device seconds of the programs that learners run."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

T = TypeVar("T")
ProgramKind = Literal["update", "score"]  # gradients, or scores of given texts


class ProgramWork(NamedTuple):
    """What programs of one kind did."""

    flops: float = 0.0  # of one device
    seconds: float = 0.0  # during which the device ran them


class ProgramMeter:
    """Counts the FLOPs of programs, and measures when the device has run them, on a thread that
    waits for their results. Does nothing before `start`.

    Seconds are from when the first of some programs was handed to the device, or from the end of
    the programs before where these ended later, to the end of the last one: those of other programs
    that the device runs meanwhile, such as an engine's, are not told apart.
    """

    def __init__(self) -> None:
        self._flops_of: Callable[[Any], float] | None = None
        self._flops_of_program: dict[Any, float] = {}
        self._pending, self._pending_start = 0.0, 0.0
        self._last_end = 0.0
        self._work: dict[ProgramKind, list[Future[ProgramWork]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None

    def start(self, flops_of: Callable[[Any], float]) -> None:
        """Measure from now on; `flops_of` gives the FLOPs of a jaxpr on all devices together."""
        self._flops_of = flops_of
        self._thread = self._thread or ThreadPoolExecutor(1, "program meter")

    def stop(self) -> None:
        """Measure no more, and end the thread."""
        self._flops_of, self._work = None, defaultdict(list)
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def run(self, program: Any, mesh: Mesh, inputs: Sequence[Any]) -> Any:
        """Call a jitted program of these devices, and count it."""
        if self._flops_of is not None:
            arrays = jax.tree.leaves(inputs)
            key = program, tuple((np.shape(x), x.dtype) for x in arrays)
            if key not in self._flops_of_program:  # before the call, to which some are donated
                flops = self._flops_of(program.trace(*inputs).jaxpr)
                self._flops_of_program[key] = flops / mesh.devices.size
            self._pending_start = self._pending_start or time.perf_counter()
            self._pending += self._flops_of_program[key]
        return program(*inputs)

    def finish(self, kind: ProgramKind, results: T) -> T:
        """The counted programs have run when these results of the last one, which are returned, are
        ready; nothing may be donated of them before.
        """
        if self._thread is not None and self._pending_start:
            flops, start = self._pending, self._pending_start
            self._pending = self._pending_start = 0.0
            with self._lock:
                self._work[kind].append(self._thread.submit(self._wait, results, flops, start))
        return results

    def _wait(self, results: Any, flops: float, start: float) -> ProgramWork:
        jax.block_until_ready(results)
        end = time.perf_counter()
        seconds, self._last_end = end - max(start, self._last_end), end
        return ProgramWork(flops, seconds)

    def take(self) -> "PendingWork":
        """The programs since the last call, some of which may still run."""
        with self._lock:
            work, self._work = self._work, defaultdict(list)
        return PendingWork(work)


class PendingWork:
    """Programs of a step."""

    def __init__(self, work: dict[ProgramKind, list["Future[ProgramWork]"]]) -> None:
        self._work = work

    def wait(self) -> dict[ProgramKind, ProgramWork]:
        """The sums of each kind, once all have run."""
        results: dict[ProgramKind, list[ProgramWork]] = {
            kind: [future.result() for future in futures] for kind, futures in self._work.items()
        }
        return {
            kind: ProgramWork(sum(x.flops for x in parts), sum(x.seconds for x in parts))
            for kind, parts in results.items()
        }


# Of this process: its learners share the devices.
PROGRAM_METER = ProgramMeter()
