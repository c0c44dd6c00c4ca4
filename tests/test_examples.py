"""The programs of examples/ run as their docstrings say; the first one learns."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.forked import run_forked
from support.processes import ROOT, process_environment

PROGRAMS = {
    "own_environment": ["2"],
    "own_loss": ["2"],
    "two_agents": ["2"],
    "asynchronous": ["3"],
    "pretrained_lora": [],
}


def test_every_program_is_short_and_tested():
    lines = {path.stem: len(path.read_text().splitlines()) for path in ROOT.glob("examples/*.py")}
    assert lines.keys() == {"minimal_grpo", *PROGRAMS}
    assert max(lines.values()) <= 150


@pytest.mark.slow
def test_minimal_grpo_learns(tmp_path: Path):
    (tmp_path / "short.py").write_text(
        f"import sys\n\nsys.path.insert(0, {str(ROOT / 'examples')!r})\n"
        "import minimal_grpo\n\nminimal_grpo.train(steps=13)\n"
    )
    done = run_forked([str(tmp_path / "short.py")], process_environment(2), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    returns = [float(x) for x in re.findall(r"mean return +(-?\d+\.\d+)", done.stdout)]
    assert len(returns) == 13 and np.mean(returns[-5:]) > np.mean(returns[:3]) + 0.6, returns


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_and_prints_its_table(name: str, tmp_path: Path):
    command = [str(ROOT / "examples" / f"{name}.py"), *PROGRAMS[name]]
    done = run_forked(command, process_environment(1), tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    (summary,) = tmp_path.glob("runs/*/summary.json")
    names = [row["name"] for row in json.loads(summary.read_text())["table"]]
    assert {"expert", "SFT"} < set(names) and len(names) > 3
