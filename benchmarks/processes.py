"""Rollout and update over 1, 2 and 4 processes: python benchmarks/processes.py [--counts=1,2,4] [--steps=12] [--print_only]

The same run (configs/wordle_grpo.py, as many worlds a step in all) by several processes over gloo, each held to one core where the
system allows it: process p to core p modulo the number of cores. Medians over the steps but for the first three, in tokens
a second; cells are kept in benchmarks/results/processes/ and put into docs/pods.md. More processes than cores share them.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from absl import flags

from agentrl_jax.launch import command, pages

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "processes", ROOT / "docs" / "pods.md"
WARM = 3
flags.DEFINE_list("counts", ["1", "2", "4"], "How many processes.")
flags.DEFINE_integer("steps", 12, "Steps of a cell.")
flags.DEFINE_bool("print_only", False, "Run nothing.")


def measure() -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    for count in map(int, flags.FLAGS.counts):
        path = RESULTS / f"{count}.json"
        if not path.exists() and not flags.FLAGS.print_only:
            path.write_text(json.dumps(cell(count, flags.FLAGS.steps), indent=1) + "\n")
            pages.put(PAGE, "processes", table())
    pages.put(PAGE, "processes", table())
    print(table())


def cell(count: int, steps: int) -> dict[str, float]:
    """One run by so many processes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
        listener.close()
        small = ["demonstrations.episodes=1000", "sft.steps=20", f"rl.steps={steps}", "evaluation.episodes=16", "environment.workers=0"]
        run = [
            sys.executable, "-m", "agentrl_jax.launch.train", f"--run_dir={folder}/run", "--config=configs/wordle_grpo.py",
            *(f"--config.{each}" for each in small),
        ]  # fmt: skip
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        processes = []
        for p in range(count):
            who = [f"--coordinator=localhost:{port}", f"--processes={count}", f"--process_id={p}"] if count > 1 else []
            held = ["taskset", "-c", str(cores[p % len(cores)])] if cores else []
            env = {**os.environ, "JAX_PLATFORMS": "cpu"}
            processes.append(
                subprocess.Popen([*held, *run, *who], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
        for process in processes:
            _, errors = process.communicate()
            if process.returncode:
                raise SystemExit(f"{count} processes: {errors[-500:]}")
        lines = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "rl"][WARM:]
    rates = {part: float(np.median([line["tokens"] / line[f"time/{part}"] for line in lines])) for part in ("collect", "update")}
    return {"processes": count, "cores": len(cores), **rates}


def table() -> str:
    """A line a cell."""
    lines = ["| processes | cores | rollout, tokens/s | update, tokens/s |", "|---|---|---|---|"]
    for count in map(int, flags.FLAGS.counts):
        path = RESULTS / f"{count}.json"
        if not path.exists():
            lines.append(f"| {count} | missing | missing | missing |")
            continue
        x = json.loads(path.read_text())
        lines.append(f"| {count} | {min(count, x['cores'])} | {x['collect']:,.0f} | {x['update']:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(command.run(measure))
