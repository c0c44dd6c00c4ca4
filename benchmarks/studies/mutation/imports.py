"""Which modules import which, from their source."""

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
SEARCHED = (ROOT, ROOT / "tests")


def module_name(path: str) -> str:
    """algorithms/losses/kl.py -> agentrl_jax.algorithms.losses.kl"""
    name = ".".join(Path(path).with_suffix("").parts)
    return name if name.startswith("agentrl_jax.") else f"agentrl_jax.{name}"


def independent_modules(target: str, files: Iterable[Path]) -> list[str]:
    """The modules that some files import when they are imported, directly or not, and that do not
    depend on the target.
    """
    reached: dict[str, Path] = {}
    pending = [name for file in files for name in _imports(file, top_level=True)]
    while pending:
        name = pending.pop()
        path = _find(name)
        if name not in reached and path is not None:
            reached[name] = path
            pending += _imports(path, top_level=True)
    return [name for name in reached if target not in _dependencies(name)]


@functools.cache
def _dependencies(name: str) -> frozenset[str]:
    """A module, its packages and all that they import, directly or not, also within functions."""
    dependencies, pending = set[str](), [*_with_packages(name)]
    while pending:
        name = pending.pop()
        path = _find(name)
        if name not in dependencies and path is not None:
            dependencies.add(name)
            pending += _imports(path, top_level=False)
    return frozenset(dependencies)


@functools.cache
def _find(name: str) -> Path | None:
    """The file of a module of this repository."""
    for folder in SEARCHED:
        path = folder.joinpath(*name.split("."))
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


@functools.cache
def _imports(path: Path, top_level: bool) -> tuple[str, ...]:
    """The names that a file imports, with the packages that they are in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = dict.fromkeys(
        package
        for node in (tree.body if top_level else ast.walk(tree))
        for name in _imported_names(node)
        for package in _with_packages(name)
    )
    return tuple(name for name in names if _find(name) is not None)


def _imported_names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _with_packages(name: str) -> Iterator[str]:
    """a.b.c -> a, a.b, a.b.c"""
    parts = name.split(".")
    yield from (".".join(parts[: i + 1]) for i in range(len(parts)))
