"""Memory and open files of worker processes that play a mixture of environments for a long time.

    python benchmarks/studies/mixture_leaks.py --minutes=60 \\
        --member=agentrl/TextCraft-v0 \\
        --member='agentrl/ALFWorld-v0 {"horizon": 10} worlds-venv/bin/python' \\
        --member='agentrl/OpenSpiel-v0 {"game": "tic_tac_toe"} games-venv/bin/python'

A member is an environment, its options in JSON without blanks in its keys, and the interpreter that
it runs in; the last two may be left out. A round plays an episode of each member with the scripted
policy `random`, and pauses for `--pause` seconds. A line of JSON for each of ten parts of the time:
episodes so far, failed ones, and for each interpreter the resident megabytes and open files of its
worker process with all that it started. The last line is the growth from the third part to the
last, in kilobytes for each of its episodes.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from agentrl_jax.rollout.strategy import ScriptedEpisodes
from agentrl_jax.training.builders import make_runtime
from agentrl_jax.training.config import EnvironmentConfig
from agentrl_jax.workers.memory_watch import process_members, running_processes
from agentrl_jax.workers.pool import Task

PARTS, WARM_PARTS = 10, 3
MODULE = "agentrl_jax.envs"


def parse_member(text: str) -> tuple[str, dict[str, Any], str]:
    """The environment's name, its options and its interpreter."""
    name, _, rest = text.partition(" ")
    options, end = json.JSONDecoder().raw_decode(rest) if rest.startswith("{") else ({}, 0)
    return f"{MODULE}:{name}", options, rest[end:].strip()


def worker_usage() -> dict[str, tuple[float, int]]:
    """By interpreter: resident megabytes and open files of the worker and all that it started."""
    processes = dict(running_processes())
    programs: dict[int, str] = {}
    for pid, process in processes.items():
        with contextlib.suppress(OSError):
            command = Path("/proc", str(pid), "cmdline").read_bytes().decode().split("\0")
            if process.parent == os.getpid() and "agentrl_jax.workers.server" in command:
                programs[pid] = command[0]
    usage: dict[str, tuple[float, int]] = dict.fromkeys(programs.values(), (0.0, 0))
    for worker, members in process_members(processes, programs).items():
        megabytes, files = usage[programs[worker]]
        for pid in members:
            megabytes += processes[pid].resident / 2**20
            with contextlib.suppress(OSError):
                files += len(os.listdir(f"/proc/{pid}/fd"))
        usage[programs[worker]] = megabytes, files
    return usage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--member", action="append", required=True, type=parse_member)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pause", type=float, default=0.0)
    flags = parser.parse_args()
    interpreters = {name: python or sys.executable for name, _, python in flags.member}
    environment = EnvironmentConfig(flags.member[0][0], interpreters=interpreters)
    rounds, counts = 0, Counter[str]()
    looks: list[tuple[Counter[str], dict[str, tuple[float, int]]]] = []
    with make_runtime(environment) as runtime:
        start = time.monotonic()
        while len(looks) < PARTS:
            tasks = [Task(name, rounds, options) for name, options, _ in flags.member]
            for task, group in zip(
                tasks,
                runtime.collect(ScriptedEpisodes("random"), tasks, (rounds, 0)),
                strict=True,
            ):
                counts[interpreters[task.environment]] += 1
                counts["failed"] += group.num_dropped
            rounds += 1
            time.sleep(flags.pause)
            if time.monotonic() - start >= (len(looks) + 1) * 60 * flags.minutes / PARTS:
                looks.append((Counter(counts), worker_usage()))
                seconds = round(time.monotonic() - start)
                print(json.dumps({"seconds": seconds, "episodes": counts, "usage": looks[-1][1]}))
                sys.stdout.flush()
    (before, first), (after, last) = looks[WARM_PARTS - 1], looks[-1]
    growth = {}
    for python, (megabytes, _) in last.items():
        episodes = max(after[python] - before[python], 1)
        growth[python] = round(1024 * (megabytes - first[python][0]) / episodes)
    print(json.dumps({"kilobytes_an_episode": growth, "failed": counts["failed"]}))


if __name__ == "__main__":
    main()
