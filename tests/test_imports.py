"""Packages that modules import when they are loaded are installed with the package; extras are
imported where they are used.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("agentrl_jax", "models", "algorithms", "envs", "configs", "launch")
ALONE = ROOT / "envs" / "programs"  # run as separate programs
# Imported by capture/http_server.py alone, which names the extra that is missing.
OF_THE_SERVER = ("host_check.py", "http_protocol.py")
# Imported by tool_servers/mcp_connection.py alone.
OF_MCP = ("stdio_transport.py",)


def imported(path: Path) -> Iterator[str]:
    """The packages of a module's imports outside of functions and conditions."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Import():
                yield from (requirement.name.split(".")[0] for requirement in node.names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.split(".")[0]


def distribution(name: str) -> str:
    return re.split(r"[^\w.-]", name)[0].lower().replace("_", "-")


def test_a_plain_installation_has_all_that_modules_import():
    installed = {
        distribution(requirement)
        for requirement in requires("agentrl_jax") or ()
        if "extra ==" not in requirement
    }
    known, own_modules = packages_distributions(), {"agentrl_jax"} | sys.stdlib_module_names
    paths = {
        path.resolve()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if ALONE not in path.resolve().parents and path.name not in OF_THE_SERVER + OF_MCP
    }
    assert len(paths) > 200
    uses = {(name, path) for path in paths for name in imported(path) if name not in own_modules}
    assert (
        sorted(
            requirement
            for requirement in uses
            if installed.isdisjoint(map(distribution, known.get(requirement[0], ())))
        )
        == []
    )


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("agentrl_jax.reporting.plots", "plots.figure('metrics.jsonl')", "report"),
        ("agentrl_jax.reporting.reporter", "reporter.Reporter('run')", "report"),
        ("agentrl_jax.envs.lmrl.builders", "", "data"),
    ],
)
def test_a_missing_extra_is_named_in_one_sentence(
    module: str, call: str, extra: str, tmp_path: Path
):
    package, name = module.rsplit(".", 1)
    program = f"""
import sys
sys.modules.update(dict.fromkeys(("matplotlib", "tensorboardX", "tensorflow_datasets")))
from agentrl_jax.errors import UserError
try:
    from {package} import {name}
    {call}
except UserError as error:
    print(error)
"""
    completed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert completed.stdout.endswith(f": pip install 'agentrl_jax[{extra}]'\n"), completed.stderr
    assert not any(tmp_path.iterdir())
