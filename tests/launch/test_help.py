"""--help of every command answers without the libraries that take seconds to import."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = re.findall(r'"(agentrl-\w+) = ([\w.]+):main"', (ROOT / "setup.py").read_text())
SLOW_TO_IMPORT = ("jax", "flax", "optax", "orbax", "transformers", "grain", "scipy")
PROGRAM = """
import importlib, json, sys
script, module, *slow = sys.argv[1:]
sys.argv = [script, "--help"]
try:
    importlib.import_module(module).main()
except SystemExit as end:
    print(json.dumps([end.code or 0, [name for name in slow if name in sys.modules]]))
"""


def test_every_command_is_tried() -> None:
    assert len(SCRIPTS) == (ROOT / "setup.py").read_text().count(':main"')


@pytest.mark.parametrize(("script", "module"), SCRIPTS)
def test_help_imports_nothing_that_takes_seconds(script: str, module: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, script, module, *SLOW_TO_IMPORT],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    *text, last = result.stdout.splitlines()
    assert any(script in line for line in text)
    assert json.loads(last) == [0, []]
