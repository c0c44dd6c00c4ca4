"""What tests share that compile for TPUs that are not there: a process of their own, for this one must not load libtpu."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# `make test-extras` installs libtpu and sets REQUIRE_LIBTPU: were it missing there, these tests would run and fail.
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and not os.environ.get("REQUIRE_LIBTPU"),
    reason="libtpu describes TPUs; it is not installed: pip install 'agentrl_jax[aot]'",
)


def outcome(*command: str) -> str:
    """What another process prints."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
