"""Which modules of the package annotate the shapes of arrays."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("agentrl_jax", "models", "algorithms", "envs", "configs", "launch")
IMPORTS_JAXTYPING = re.compile(r"^(?:from|import) jaxtyping\b", re.MULTILINE)


def modules_with_shapes() -> list[str]:
    """The dotted names of the modules that import jaxtyping, without importing them.

    models/rope.py -> agentrl_jax.models.rope
    """
    names = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.resolve() != path:
                continue  # a link in agentrl_jax/ to another of these folders
            if IMPORTS_JAXTYPING.search(path.read_text(encoding="utf-8")):
                parts = path.relative_to(ROOT).with_suffix("").parts
                package = () if folder == "agentrl_jax" else ("agentrl_jax",)
                names.append(".".join((*package, *parts)))
    return names
