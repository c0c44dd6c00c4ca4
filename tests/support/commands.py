"""Runs the programs of launch/ as a user would."""

import subprocess

from support.forked import run_forked
from support.processes import ROOT, process_environment

# Flags that make the quickstart's smoke variant even smaller.
SMALL = [
    "--config.policy.layers=1",
    "--config.policy.width=16",
    "--config.policy.hidden=32",
    "--config.policy.heads=2",
    "--config.policy.kv_heads=1",
    "--config.policy.head_size=8",
    "--config.demonstrations.episodes=200",
    "--config.phases.sft.source.batch=16",
    "--config.phases.sft.steps=80",
    "--config.phases.rl.steps=6",
    "--config.phases.sft.checkpoint_every=30",
    "--config.phases.rl.checkpoint_every=2",
    "--config.phases.rl.source.tasks=4",
    "--config.evaluation.episodes=8",
    "--config.engine.rows=32",
    "--config.environment.options.words=2",
    "--config.phases.rl.algorithm.microbatch=8",
    "--config.phases.sft.algorithm.microbatch=8",
]


def run(command: str, *flags: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    module = f"agentrl_jax.launch.{command}"
    return run_forked(["-m", module, *flags], process_environment(1), ROOT, stdin)


def assert_one_clear_sentence(result: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.returncode == 2 and len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert all(word in lines[0] for word in words), lines[0]
