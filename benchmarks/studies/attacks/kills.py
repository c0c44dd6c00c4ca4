"""Runs that are killed at a write, a rename or any moment, and resumed: equal to an uninterrupted
one, bit for bit.
"""

import hashlib
import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import small_run
from outcome import Battery
from support.forked import ForkedProcess, start_forked
from support.processes import ROOT, process_environment
from support.untimed import untimed_log

from agentrl_jax.storage import jsonl
from agentrl_jax.storage.segments import segment_paths

SCRIPT = str(Path(small_run.__file__))
CHAIN = 6  # kills of a run, one after the other


@dataclass(frozen=True)
class Kill:
    """A signal that a run gets at the event with a number of its kind."""

    kind: str = ""
    last: int = 0  # 0: never
    sent: signal.Signals = signal.SIGKILL

    def __str__(self) -> str:
        return f"{self.sent.name} at {self.kind} {self.last}"


def start(run_dir: Path, kill: Kill = Kill()) -> ForkedProcess:
    report = run_dir.with_suffix(".events")
    command = [SCRIPT, str(run_dir), kill.kind, str(kill.last), str(int(kill.sent)), str(report)]
    return start_forked(command, process_environment(1), ROOT)


def finish(run_dir: Path) -> tuple[int, str]:
    process = start(run_dir)
    _, errors = process.communicate()
    return process.wait(1), errors


def contents(run_dir: Path) -> dict[str, Any]:
    """What two equal runs have in common: weights, optimizer and host state, metrics, records."""
    lines = [line for _, line in jsonl.read_lines(run_dir / "metrics.jsonl")]
    log = untimed_log(run_dir)
    summary = json.loads((run_dir / "summary.json").read_text())
    return {
        "metrics": [{k: v for k, v in x.items() if not k.startswith("time/")} for x in lines],
        "records": log,
        "segments": [path.name for path in segment_paths(run_dir / "trajectories")],
        "table": summary["table"],
        "weights": {
            path.relative_to(run_dir).as_posix(): checkpoint_digest(path)
            for path in sorted((run_dir / "checkpoints").glob("*/*"))
            if path.name.isdecimal()
        },
        "unfinished": sorted(
            p.relative_to(run_dir).as_posix()
            for pattern in ("*unfinished*", "*tmp*")
            for p in run_dir.rglob(pattern)
        ),
    }


def checkpoint_digest(folder: Path) -> str:
    """Of the arrays of a checkpoint."""
    import jax
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as reader:
        leaves = jax.tree.leaves(reader.restore(folder / "state"))
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in leaves)).hexdigest()


def differences(a: dict[str, Any], b: dict[str, Any]) -> str:
    return ", ".join(name for name in a if a[name] != b[name])


def attack(battery: Battery) -> None:
    complete = battery.folder / "whole"
    status, errors = finish(complete)
    assert status == 0, errors
    expected = contents(complete)
    kinds = Counter(complete.with_suffix(".events").read_text().splitlines())
    print(f"{kinds.total()} file events of {len(kinds)} kinds", flush=True)

    def check(run_dir: Path, kills: str) -> tuple[bool, str]:
        status, errors = finish(run_dir)
        if status:
            return False, f"{kills}; resumed with exit status {status}: {errors[-200:]}"
        wrong = differences(expected, contents(run_dir))
        shutil.rmtree(run_dir)
        return not wrong, f"{kills}; different: {wrong or 'nothing'}"

    def kill(name: str, kills: Sequence[Kill]) -> None:
        """Kill a run and its resumptions, one after the other."""

        def make() -> tuple[bool, str]:
            run_dir, statuses = battery.folder / name.split()[0], []
            for each in kills:
                process = start(run_dir, each)
                process.communicate()
                statuses.append(f"{each} ({process.wait(1)})")
            return check(run_dir, "; ".join(statuses))

        battery.attack(name, "equal to an uninterrupted run", make)

    # A resumed run goes on where it was killed, so each of a chain is killed later than before.
    in_order = [Kill(kind, 1) for kind in kinds]
    for i in range(0, len(in_order), CHAIN):
        kill(f"{i // CHAIN} kills at writes of each kind", in_order[i : i + CHAIN])
    for i in range(2):
        kind = battery.random.choice(list(kinds))
        kill(f"term{i} SIGTERM at a write", [Kill(kind, 1, signal.SIGTERM)])

    def kill_at_times() -> tuple[bool, str]:
        run_dir, moments = battery.folder / "timed", []
        for _ in range(6):
            process = start(run_dir)
            moments.append(battery.random.uniform(1.0, 12.0))
            time.sleep(moments[-1])
            process.kill()
            process.communicate()
        return check(run_dir, f"after {[round(x, 2) for x in moments]} s")

    battery.attack("six SIGKILL at any moment", "equal to an uninterrupted run", kill_at_times)
