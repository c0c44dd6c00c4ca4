"""Compiling for TPU topologies in a separate process, since this one must not load libtpu."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# `make test-extras` installs libtpu and sets REQUIRE_LIBTPU, so that these tests fail where it is
# missing.
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and not os.environ.get("REQUIRE_LIBTPU"),
    reason="libtpu describes TPUs; it is not installed: pip install 'agentrl_jax[aot]'",
)


def run_python(*command: str) -> str:
    """The standard output of a Python process."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout
