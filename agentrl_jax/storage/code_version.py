"""The code that a run was started with: the versions of packages, the commit of a checkout, and the
flags of the compiler.
"""

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

REPORTED_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "transformers",
    "grain",
    "gymnasium",
    "numpy",
)
GIT_TIMEOUT = 10.0  # seconds
FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")


def code_version() -> dict[str, str]:
    """The versions of Python and of packages by name, the environment variables with flags of XLA
    where they are set, and `commit`, with a digest of the changes after it where tracked files
    differ; without `commit` where the package is in no checkout.
    """
    root = Path(__file__).resolve().parents[2]
    versions = {name: _package_version(name) for name in ("agentrl_jax", *REPORTED_PACKAGES)}
    versions |= {name: os.environ[name] for name in FLAG_VARIABLES if os.environ.get(name)}
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else ""
    if commit:
        changes = _git(root, "diff", "HEAD")
        digest = hashlib.blake2b(changes.encode(), digest_size=4).hexdigest()
        versions["commit"] = f"{commit}+{digest}" if changes else commit
    return {"python": platform.python_version(), **versions}


def _package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command; empty where it fails."""
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=GIT_TIMEOUT,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def version_changes(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What differs: ["jax 0.10.2, now 0.11.0"]."""
    return [
        f"{name} {before.get(name, 'none')}, now {now.get(name, 'none')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
