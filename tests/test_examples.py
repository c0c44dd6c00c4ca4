"""The programs of examples/ run as their docstrings say; the first one learns."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
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
def test_minimal_grpo_learns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    program = importlib.import_module("minimal_grpo")
    returns = program.train(steps=30)
    assert np.mean(returns[-5:]) > np.mean(returns[:3]) + 1.0, returns
    assert capsys.readouterr().out.count("mean return") == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_and_prints_its_table(name: str, tmp_path: Path):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *PROGRAMS[name]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    (summary,) = tmp_path.glob("runs/*/summary.json")
    names = [row["name"] for row in json.loads(summary.read_text())["table"]]
    assert {"expert", "SFT"} < set(names) and len(names) > 3
