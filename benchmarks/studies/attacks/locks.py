"""Several commands on one folder: exactly one of them changes it, and the records are its alone."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kills
import small_run
from outcome import Battery
from support.forked import ForkedProcess, start_forked
from support.processes import ROOT, process_environment

from agentrl_jax.errors import UserError
from agentrl_jax.storage.folder_lock import (
    LOCK_FILE,
    STALE_SECONDS,
    exclusive_lock,
)

SCRIPT = str(Path(small_run.__file__))
REFUSAL = "another command is"
MAX_SECONDS = 300.0
# Takes the lock of a folder for what it is doing, and waits.
HOLDER = """
import sys, time
from pathlib import Path
from agentrl_jax.storage.folder_lock import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), sys.argv[2]) as lock:
    print("locked", flush=True)
    for _ in range(6000):
        time.sleep(0.1)
        lock.check()
"""


def start(run_dir: Path) -> ForkedProcess:
    return kills.start(run_dir)


@contextlib.contextmanager
def holder(folder: Path, activity: str = "training") -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock of a folder."""
    command = [sys.executable, "-c", HOLDER, str(folder), activity]
    environment = process_environment(1)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "locked\n"
        yield process
        process.send_signal(signal.SIGCONT)
        process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the other process came to no point where it has the lock")
        time.sleep(0.05)


def has_owner(run_dir: Path) -> bool:
    path = run_dir / LOCK_FILE
    return path.exists() and bool(path.read_text())


def ends(processes: Sequence[ForkedProcess]) -> list[tuple[int, str]]:
    """The exit status of each and the end of what it printed."""
    results = []
    for process in processes:
        _, errors = process.communicate(MAX_SECONDS)
        results.append((process.wait(1), errors.strip().rpartition("\n")[2]))
    return results


def lock_of(folder: Path) -> str:
    """What comes of taking the lock: "taken", or the sentence."""
    try:
        with exclusive_lock(folder, "training"):
            return "taken"
    except UserError as error:
        return str(error)


class Attacks:
    """The attacks of the section; each returns whether it was withstood and what happened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        complete = folder / "whole"
        status, errors = kills.finish(complete)
        assert status == 0, errors
        self._expected = kills.contents(complete)

    def _new(self, name: str) -> Path:
        return self._folder / name

    def _is_one_run(self, run_dir: Path, results: Sequence[tuple[int, str]]) -> tuple[bool, str]:
        """Whether one process ended well, the others were refused, and the run is as alone."""
        winners = [status for status, _ in results if status == 0]
        refused = [text for status, text in results if status and REFUSAL in text]
        wrong = kills.differences(self._expected, kills.contents(run_dir))
        ok = len(winners) == 1 and len(refused) == len(results) - 1 and not wrong
        happened = f"{len(winners)} ran, {len(refused)} of {len(results) - 1} refused"
        return ok, f"{happened}; different: {wrong or 'nothing'}; {results[-1][1]}"

    def at_once(self, count: int) -> tuple[bool, str]:
        run_dir = self._new(f"at once {count}")
        return self._is_one_run(run_dir, ends([start(run_dir) for _ in range(count)]))

    def during(self) -> tuple[bool, str]:
        run_dir = self._new("during")
        first = start(run_dir)
        wait_until(lambda: (run_dir / "metrics.jsonl").exists())
        return self._is_one_run(run_dir, ends([start(run_dir), first]))

    def after_a_kill(self) -> tuple[bool, str]:
        run_dir = self._new("killed")
        first = start(run_dir)
        wait_until(lambda: (run_dir / "metrics.jsonl").exists())
        first.kill()
        first.communicate()
        return self._is_one_run(run_dir, ends([start(run_dir)]))

    def two_after_a_kill(self) -> tuple[bool, str]:
        run_dir = self._new("killed, two")
        first = start(run_dir)
        wait_until(lambda: (run_dir / "metrics.jsonl").exists())
        first.kill()
        first.communicate()
        return self._is_one_run(run_dir, ends([start(run_dir), start(run_dir)]))

    def stopped(self) -> tuple[bool, str]:
        """A stopped process still has its flock: the second one is refused, the first goes on."""
        run_dir = self._new("stopped")
        first = start(run_dir)
        wait_until(lambda: (run_dir / "metrics.jsonl").exists())
        first.send_signal(signal.SIGSTOP)
        (second,) = ends([start(run_dir)])
        first.send_signal(signal.SIGCONT)
        return self._is_one_run(run_dir, [second, *ends([first])])

    def copied(self) -> tuple[bool, str]:
        """A copy of a folder in use has the owner's name in its lock and no flock."""
        run_dir, copy = self._new("copied"), self._new("copy")
        first = start(run_dir)
        wait_until(lambda: has_owner(run_dir) and (run_dir / "config.json").exists())
        copy.mkdir()
        for name in (LOCK_FILE, "config.json"):
            shutil.copy2(run_dir / name, copy / name)
        digests = run_dir / "digests.json"
        if digests.exists():
            shutil.copy2(digests, copy / "digests.json")
        results = [*ends([start(copy)]), *ends([first])]
        wrong = [kills.differences(self._expected, kills.contents(x)) for x in (run_dir, copy)]
        ok = [status for status, _ in results] == [0, 0] and not any(wrong)
        return ok, f"both ran, each in its folder; different: {wrong}"

    def _foreign(self, age: float) -> Path:
        """A folder whose lock was renewed by another machine so many seconds ago."""
        folder = self._new(f"foreign {age:g}")
        with exclusive_lock(folder, "training"):
            owner: dict[str, Any] = json.loads((folder / LOCK_FILE).read_text())
        owner |= {"host": "elsewhere", "boot": "another"}
        (folder / LOCK_FILE).write_text(json.dumps(owner))
        os.utime(folder / LOCK_FILE, (time.time() - age, time.time() - age))
        return folder

    def foreign_dead(self) -> tuple[bool, str]:
        run_dir = self._foreign(STALE_SECONDS + 5)
        return self._is_one_run(run_dir, ends([start(run_dir)]))

    def foreign_alive(self) -> tuple[bool, str]:
        folder = self._foreign(1.0)
        renewing = subprocess.Popen(
            ["/bin/sh", "-c", f"while sleep 1; do touch '{folder / LOCK_FILE}'; done"]
        )
        try:
            happened = lock_of(folder)
        finally:
            renewing.kill()
            renewing.wait()
        return REFUSAL in happened and "on elsewhere" in happened, happened

    def damaged(self) -> tuple[bool, str]:
        """A lock that says nothing readable, with no process behind it."""
        run_dir = self._new("damaged")
        run_dir.mkdir()
        (run_dir / LOCK_FILE).write_bytes(b'{"activity": "tra\xff')
        return self._is_one_run(run_dir, ends([start(run_dir)]))

    def on_used_folder(self, activity: str, command: Sequence[str]) -> tuple[bool, str]:
        """A command on a folder of which another process has the lock."""
        folder = self._new(command[1].rpartition(".")[2])
        with holder(folder, activity):
            arguments = [*command[:-1], command[-1] + str(folder)]
            process = start_forked(arguments, process_environment(1), ROOT)
            ((status, text),) = ends([process])
            names = sorted(x.name for x in folder.iterdir())
        ok = status == 2 and f"{REFUSAL} {activity}" in text and names == [LOCK_FILE]
        return ok, f"exit status {status}, {names}: {text}"


def attack(battery: Battery) -> None:
    attacks = Attacks(battery.folder)
    expected = "one runs, and its records are those of a run alone"
    for count in (2, 3):
        battery.attack(f"{count} started at once", expected, lambda n=count: attacks.at_once(n))
    battery.attack("a second one during a run", expected, attacks.during)
    battery.attack("one after the owner was killed", expected, attacks.after_a_kill)
    battery.attack("two after the owner was killed", expected, attacks.two_after_a_kill)
    battery.attack("a second one while the owner is stopped", expected, attacks.stopped)
    battery.attack("a copied folder with its lock", "both run", attacks.copied)
    battery.attack("a foreign lock without a sign of life", expected, attacks.foreign_dead)
    battery.attack("a foreign lock that is renewed", "refused", attacks.foreign_alive)
    battery.attack("a damaged lock", expected, attacks.damaged)
    refused = "refused with one sentence, nothing changed"
    commands = {
        "agentrl-data": [
            "-m",
            "agentrl_jax.launch.data",
            "--task=maze_fo",
            "--records=4",
            "--out=",
        ],
        "agentrl-sweep": [
            "-m",
            "agentrl_jax.launch.sweep",
            "--config=configs/wordle_grpo.py:smoke",
            "--out=",
        ],
        "agentrl-train": [
            "-m",
            "agentrl_jax.launch.train",
            "--config=configs/wordle_grpo.py:smoke",
            "--fresh",
            "--run_dir=",
        ],
    }
    for name, command in commands.items():
        battery.attack(
            f"{name} on a folder in use",
            refused,
            lambda command=command: attacks.on_used_folder("doing something else", command),
        )
