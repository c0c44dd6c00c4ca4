"""What modules import as they are loaded is installed with the package; extras are imported where they are used."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("agentrl_jax", "models", "algorithms", "envs", "configs", "launch")
ALONE = ROOT / "envs" / "programs"  # run as programs of their own


def imported(path: Path) -> Iterator[str]:
    """The packages of a module's imports outside of functions and conditions."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.Import():
                yield from (one.name.split(".")[0] for one in node.names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.split(".")[0]


def distribution(name: str) -> str:
    return re.split(r"[^\w.-]", name)[0].lower().replace("_", "-")


def test_a_plain_installation_has_all_that_modules_import():
    installed = {distribution(one) for one in requires("agentrl_jax") or () if "extra ==" not in one}
    known, own = packages_distributions(), {"agentrl_jax"} | sys.stdlib_module_names
    paths = {path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if ALONE not in path.resolve().parents}
    assert len(paths) > 200
    found = {(name, path) for path in paths for name in imported(path) if name not in own}
    assert sorted(one for one in found if installed.isdisjoint(map(distribution, known.get(one[0], ())))) == []
