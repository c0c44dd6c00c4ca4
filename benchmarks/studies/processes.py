"""The speed of rollout and update over 1, 2 and 4 processes.

    python benchmarks/studies/processes.py [--counts=1,2,4] [--steps=12] [--print_only]

The same steps of GRPO with a KL penalty (configs/wordle_grpo.py, fresh weights, the same number of
tasks per step in all) by several processes over gloo, each pinned to one core where the system
allows it: process p to core p modulo the number of cores. Medians over the steps after the first
three, in tokens per second; cells are cached in benchmarks/results/processes/ and written to
docs/pods.md. More processes than cores share them.
"""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from absl import flags

from agentrl_jax.launch import cli, doc_tables

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "processes", ROOT / "docs" / "pods.md"
WARMUP_STEPS = 3
flags.DEFINE_list("counts", ["1", "2", "4"], "How many processes.")
flags.DEFINE_integer("steps", 12, "Steps of a cell.")
flags.DEFINE_bool("print_only", False, "Run nothing.")
flags.DEFINE_string(
    "worker", "", "The folder of the run of this process; empty: start the processes."
)
flags.DEFINE_string("coordinator", "", "host:port of process 0.")
flags.DEFINE_integer("process_id", 0, "Which of them this is.")


def run_worker(folder: Path, count: int, steps: int) -> None:
    """One process: timed steps of collecting and updating; process 0 writes the times."""
    from agentrl_jax.algorithms.losses.regularizers import KL
    from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
    from agentrl_jax.configs.wordle_grpo import get_config
    from agentrl_jax.distributed.process_group import ProcessGroup, initialize
    from agentrl_jax.training.run import Run

    config = get_config()
    phase = config.phases["rl"]
    assert config.demonstrations and isinstance(phase.algorithm, PolicyGradientConfig)
    config.demonstrations.episodes, config.environment.workers, config.evaluation.players = (
        1000,
        0,
        (),
    )
    phase.algorithm = dataclasses.replace(
        phase.algorithm, regularizers={"kl": KL(1e-3)}
    )  # every row has a loss, also without signal
    processes = (
        initialize(flags.FLAGS.coordinator, count, flags.FLAGS.process_id)
        if count > 1
        else ProcessGroup()
    )
    with processes, Run(config, folder / "run", True, processes) as run:
        cells = []
        algorithm = phase.algorithm.build(run.policy, run.mesh, steps)
        state, feed = (
            algorithm.init(jax.random.key(0), run.params),
            phase.source.open(run.begin_phase("rl")),
        )
        for step in range(steps):
            run.runtime.publish(state.params, step)
            began = time.perf_counter()
            groups = feed.next(step)
            processes.barrier("collected")
            collected = time.perf_counter()
            state, metrics = algorithm.step(state, groups, run.runtime)
            jax.block_until_ready(state.params)
            cells.append(
                {
                    "tokens": metrics["tokens"],
                    "collect": collected - began,
                    "update": time.perf_counter() - collected,
                }
            )
    if processes.is_coordinator:
        (folder / "steps.json").write_text(json.dumps(cells))


def measure() -> None:
    if flags.FLAGS.worker:
        return run_worker(Path(flags.FLAGS.worker), int(flags.FLAGS.counts[0]), flags.FLAGS.steps)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for count in map(int, flags.FLAGS.counts):
        path = RESULTS / f"{count}.json"
        if not path.exists() and not flags.FLAGS.print_only:
            path.write_text(json.dumps(run_cell(count, flags.FLAGS.steps), indent=1) + "\n")
            doc_tables.replace_section(PAGE, "processes", table())
    doc_tables.replace_section(PAGE, "processes", table())
    print(table())


def run_cell(count: int, steps: int) -> dict[str, float]:
    """One run by `count` processes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
        listener.close()
        run = [
            sys.executable,
            __file__,
            f"--worker={folder}",
            f"--counts={count}",
            f"--steps={steps}",
        ]
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        processes = []
        for p in range(count):
            identity = [f"--coordinator=localhost:{port}", f"--process_id={p}"] if count > 1 else []
            pinned = ["taskset", "-c", str(cores[p % len(cores)])] if cores else []
            env = {**os.environ, "JAX_PLATFORMS": "cpu"}
            processes.append(
                subprocess.Popen(
                    [*pinned, *run, *identity],
                    cwd=ROOT,
                    env=env,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        for process in processes:
            _, errors = process.communicate()
            if process.returncode:
                raise SystemExit(f"{count} processes: {errors[-500:]}")
        lines = json.loads((Path(folder) / "steps.json").read_text())[WARMUP_STEPS:]
    rates = {
        part: float(np.median([line["tokens"] / line[part] for line in lines]))
        for part in ("collect", "update")
    }
    return {"processes": count, "cores": len(cores), **rates}


def table() -> str:
    """A row per cell."""
    lines = ["| processes | cores | rollout, tokens/s | update, tokens/s |", "|---|---|---|---|"]
    for count in map(int, flags.FLAGS.counts):
        path = RESULTS / f"{count}.json"
        if not path.exists():
            lines.append(f"| {count} | missing | missing | missing |")
            continue
        x = json.loads(path.read_text())
        lines.append(
            f"| {count} | {min(count, x['cores'])} | {x['collect']:,.0f} | {x['update']:,.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(cli.run(measure))
