"""Rollout and update over 1, 2 and 4 processes: python benchmarks/processes.py [--counts=1,2,4] [--steps=12] [--print_only]

The same steps of GRPO with a KL penalty (configs/wordle_grpo.py, fresh weights, as many worlds a step in all) by several processes
over gloo, each held to one core where the system allows it: process p to core p modulo the number of cores. Medians over the steps
but for the first three, in tokens a second; cells are kept in benchmarks/results/processes/ and put into docs/pods.md. More
processes than cores share them.
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

from agentrl_jax.launch import command, pages

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "processes", ROOT / "docs" / "pods.md"
WARM = 3
flags.DEFINE_list("counts", ["1", "2", "4"], "How many processes.")
flags.DEFINE_integer("steps", 12, "Steps of a cell.")
flags.DEFINE_bool("print_only", False, "Run nothing.")
flags.DEFINE_string("worker", "", "The folder of the run that this process is part of; empty: it starts them.")
flags.DEFINE_string("coordinator", "", "Of the processes of a run.")
flags.DEFINE_integer("process_id", 0, "Which of them this is.")


def work(folder: Path, count: int, steps: int) -> None:
    """One process: steps of collecting and updating, each waited for; process 0 writes what they took."""
    from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
    from agentrl_jax.algorithms.terms import KL
    from agentrl_jax.configs.wordle_grpo import get_config
    from agentrl_jax.hosts import Hosts, join
    from agentrl_jax.run import Run

    config = get_config()
    assert config.demonstrations and config.rl and isinstance(config.rl.algorithm, PolicyGradientConfig)
    config.demonstrations.episodes, config.environment.workers, config.evaluation.players = 1000, 0, ()
    config.rl.algorithm = dataclasses.replace(
        config.rl.algorithm, regularisers={"kl": KL(1e-3)}
    )  # every row has a loss, also without signal
    hosts = join(flags.FLAGS.coordinator, count, flags.FLAGS.process_id) if count > 1 else Hosts()
    with hosts, Run(config, folder / "run", True, hosts) as run:
        phase, found = config.rl, []
        algorithm = phase.algorithm.build(run.policy, run.mesh, steps)
        state, feed = algorithm.init(jax.random.key(0), run.params), phase.source.open(run)
        for step in range(steps):
            run.runtime.publish(state.params, step)
            began = time.perf_counter()
            groups = feed.next(step)
            hosts.barrier("collected")
            collected = time.perf_counter()
            state, metrics = algorithm.step(state, groups, run.runtime)
            jax.block_until_ready(state.params)
            found.append({"tokens": metrics["tokens"], "collect": collected - began, "update": time.perf_counter() - collected})
    if hosts.leads:
        (folder / "steps.json").write_text(json.dumps(found))


def measure() -> None:
    if flags.FLAGS.worker:
        return work(Path(flags.FLAGS.worker), int(flags.FLAGS.counts[0]), flags.FLAGS.steps)
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
        run = [sys.executable, __file__, f"--worker={folder}", f"--counts={count}", f"--steps={steps}"]
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        processes = []
        for p in range(count):
            who = [f"--coordinator=localhost:{port}", f"--process_id={p}"] if count > 1 else []
            held = ["taskset", "-c", str(cores[p % len(cores)])] if cores else []
            env = {**os.environ, "JAX_PLATFORMS": "cpu"}
            processes.append(
                subprocess.Popen([*held, *run, *who], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
        for process in processes:
            _, errors = process.communicate()
            if process.returncode:
                raise SystemExit(f"{count} processes: {errors[-500:]}")
        lines = json.loads((Path(folder) / "steps.json").read_text())[WARM:]
    rates = {part: float(np.median([line["tokens"] / line[part] for line in lines])) for part in ("collect", "update")}
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
