"""Only one module imports the network library."""

import ast
from pathlib import Path

import agentrl_jax.models.parameters as parameters

MODELS = Path(parameters.__file__).parent


def imports_flax_linen(path: Path) -> bool:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return any(f"{name}.".startswith("flax.linen.") for name in modules)


def test_weights_are_declared_in_one_module():
    assert [x.name for x in MODELS.rglob("*.py") if imports_flax_linen(x)] == ["parameters.py"]
