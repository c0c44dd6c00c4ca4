"""`sandbox`: what a snippet and a session cost, on each rung that is here.

Generates the table of docs/sandbox.md.
"""

import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentrl_jax.errors import UserError
from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.rivals import round_significant
from agentrl_jax.launch.dataclass_flags import option
from agentrl_jax.sandbox.ladder import Rung, SandboxConfig, open_rung
from agentrl_jax.sandbox.sandbox import Sandbox
from agentrl_jax.sandbox.snippet import Snippet
from agentrl_jax.sandbox.zygote_session import ZygoteSession

RUNGS = tuple(rung.name.lower() for rung in Rung if rung != Rung.REMOTE)
CODE = "print(sum(range(1000)))"
OUTPUT = "499500\n"
HEADER = (
    "| | start | one at a time: p50, p99 | {at_once} at once: p50, p99 | snippets/s | "
    "call of a session: p50 | memory of a session |"
)


@dataclass
class SandboxCost:
    """Times of snippets that only print a number, and the memory of sessions that wait."""

    rung: tuple[str, ...] = option(RUNGS, "landlock, bubblewrap, gvisor; may be repeated.")
    snippets: int = option(300, "Snippets of each measurement; of gVisor a tenth.", 2)
    at_once: int = option(8, "Snippets at once.", 1)
    sessions: int = option(16, "Sessions at once whose memory is measured.", 1)
    modules: tuple[str, ...] = option((), "A package to import beforehand; may be repeated.")
    page: str = option(
        "", "The page whose table `sandbox-cost` is replaced, docs/sandbox.md; empty: none."
    )

    def prepare(self) -> None:
        """Uses none of this process's devices."""

    def run(self) -> dict[str, Any]:
        """Measure, print the table and report; what is not here is left out.

        Raises:
            UserError: there is no such rung, or none is here.
        """
        results: dict[str, dict[str, float]] = {}
        absent: dict[str, str] = {}
        for name in self.rung:
            if name not in RUNGS:
                raise UserError(f"--rung is one of {', '.join(RUNGS)}, not {name!r}")
            try:
                results[name] = self.measure(Rung[name.upper()])
            except UserError as error:
                absent[name] = str(error)
        if not results:
            raise UserError(f"none of these sandboxes is here: {absent}")
        header = HEADER.format(at_once=self.at_once)
        lines = [header, "|---" * (header.count("|") - 1) + "|"]
        lines += [_row(name, result) for name, result in results.items()]
        host = {
            "python": platform.python_version(),
            "kernel": platform.release(),
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
        }
        note = "Python {python}, Linux {kernel}, {cores} cores, load {load}.".format(**host)
        table = "\n".join([*lines, "", note])
        if self.page:
            doc_tables.replace_section(Path(self.page), "sandbox-cost", table)
        print(table)
        return {
            "bench": "sandbox",
            "snippets": self.snippets,
            "at_once": self.at_once,
            "rungs": results,
            "absent": absent,
            **host,
        }

    def measure(self, rung: Rung) -> dict[str, float]:
        """Milliseconds, snippets per second and megabytes.

        Raises:
            UserError: the rung is not here.
        """
        start = time.perf_counter()
        with open_rung(rung, SandboxConfig(modules=tuple(self.modules))) as sandbox:
            run_snippet(sandbox)
            result = {"start_ms": 1000 * (time.perf_counter() - start)}
            count = self.snippets if rung != Rung.GVISOR else max(2, self.snippets // 10)
            alone = [timed(lambda: run_snippet(sandbox)) for _ in range(count)]
            start = time.perf_counter()
            with ThreadPoolExecutor(self.at_once) as pool:
                jobs = [pool.submit(timed, lambda: run_snippet(sandbox)) for _ in alone]
                together = [job.result() for job in jobs]
            result["snippets_per_second"] = count / (time.perf_counter() - start)
            for name, times in (("alone", alone), ("together", together)):
                p50, p99 = np.percentile(times, (50, 99))
                result |= {f"{name}_p50_ms": float(p50), f"{name}_p99_ms": float(p99)}
            result |= self.measure_sessions(sandbox, count)
        return {name: round_significant(value) for name, value in result.items()}

    def measure_sessions(self, sandbox: Sandbox, count: int) -> dict[str, float]:
        sessions = [sandbox.session() for _ in range(self.sessions)]
        try:
            for session in sessions:
                session.run(CODE)
            calls = [timed(lambda: sessions[0].run(CODE)) for _ in range(min(50, count))]
            pids = [s.pid for s in sessions if isinstance(s, ZygoteSession) and s.pid]
            result = {"call_p50_ms": float(np.median(calls))}
            if pids:
                result["session_mb"] = sum(map(_proportional_mb, pids)) / len(pids)
            return result
        finally:
            for session in sessions:
                session.close()


def run_snippet(sandbox: Sandbox) -> None:
    """Raises AssertionError where the snippet prints anything else."""
    outcome = sandbox.run(Snippet(CODE))
    assert outcome.stdout == OUTPUT, outcome


def timed(function: Callable[[], Any]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    function()
    return 1000 * (time.perf_counter() - start)


def _proportional_mb(pid: int) -> float:
    """The memory of a process and of those below it; pages that several share are divided."""
    total = 0.0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            total += int(line.split()[1]) / 1024
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return total + sum(_proportional_mb(int(child)) for child in children)


def _row(name: str, result: dict[str, float]) -> str:
    memory = f"{result['session_mb']:.3g} MB" if "session_mb" in result else "-"
    cells = [
        name,
        f"{result['start_ms']:.0f} ms",
        f"{result['alone_p50_ms']:.3g}, {result['alone_p99_ms']:.3g} ms",
        f"{result['together_p50_ms']:.3g}, {result['together_p99_ms']:.3g} ms",
        f"{result['snippets_per_second']:.3g}",
        f"{result['call_p50_ms']:.3g} ms",
        memory,
    ]
    return f"| {' | '.join(cells)} |"
