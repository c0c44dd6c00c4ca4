"""Fails on identifiers that do not describe what they name; part of `make lint`.

    python tests/support/check_identifiers.py

A word of `WHOLE` may not be an identifier by itself; a word of `ANYWHERE` may not be part of one
either.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "agentrl_jax",
    "models",
    "algorithms",
    "envs",
    "configs",
    "launch",
    "benchmarks",
    "examples",
    "tests",
)
WHOLE = {
    "found", "kept", "one", "whole", "mine", "own", "here", "drawn", "played", "given", "wanted",
    "made", "held", "shown", "spoken", "learned", "taught", "judged", "studied", "beside",
}  # fmt: skip
ANYWHERE = {
    "said", "says", "told", "tells", "asked", "heard", "hears", "brought", "dealt", "somebody",
    "nobody", "everybody", "whoever", "beside",
}  # fmt: skip


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every identifier that a module binds, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.arg():
                yield node.arg, node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def is_private_word(name: str) -> bool:
    """Whether the name is one that a reader outside the project could not understand."""
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).split("_")
    words = [word for word in words if word]
    if len(words) == 1 and words[0] in WHOLE:
        return True
    return not name.startswith("test_") and bool(ANYWHERE & set(words))


def offences(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for name, line in bound_names(tree)
        if is_private_word(name)
    ]


def python_files() -> Iterator[Path]:
    """Regular files; the links in agentrl_jax/ lead to folders that are checked by themselves."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() == path:
                yield path


def main() -> int:
    lines = [line for path in python_files() for line in offences(path)]
    print(*lines, sep="\n")
    print(f"{len(lines)} identifiers are private words; name the thing in the field's terms")
    return min(len(lines), 1)


if __name__ == "__main__":
    sys.exit(main())
