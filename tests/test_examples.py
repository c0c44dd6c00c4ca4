"""The programs of examples/ run as their docstrings say; the first one learns."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.processes import ROOT, process_environment

PROGRAMS = {
    "own_environment": ["3"],
    "own_loss": ["3"],
    "two_agents": ["3"],
    "asynchronous": ["4"],
    "pretrained_lora": [],
}


def test_every_program_is_short_and_tested():
    lines = {path.stem: len(path.read_text().splitlines()) for path in ROOT.glob("examples/*.py")}
    assert lines.keys() == {"minimal_grpo", *PROGRAMS}
    assert max(lines.values()) <= 150


@pytest.mark.slow
def test_minimal_grpo_learns():
    done = subprocess.run(
        [sys.executable, "-c", "import minimal_grpo; minimal_grpo.train(steps=30)"],
        cwd=ROOT / "examples",
        capture_output=True,
        text=True,
        env=process_environment(2),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    returns = [float(x) for x in re.findall(r"mean return +(-?\d+\.\d+)", done.stdout)]
    assert len(returns) == 30 and np.mean(returns[-5:]) > np.mean(returns[:3]) + 1.0, returns


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_and_prints_its_table(name: str, tmp_path: Path):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *PROGRAMS[name]]
    environment = {**process_environment(1), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    (summary,) = tmp_path.glob("runs/*/summary.json")
    names = [row["name"] for row in json.loads(summary.read_text())["table"]]
    assert {"expert", "SFT"} < set(names) and len(names) > 3
