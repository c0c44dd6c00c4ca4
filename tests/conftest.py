"""Tests run on eight fake CPU devices, with checked shapes and without promotion."""

import os
import signal
from pathlib import Path

# Processes share compiled programs: tests start many that compile the same. Counters of
# compilations count a cached program too.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
# Tests compile much and compute little: unoptimized CPU code takes a third less time in all, and
# without XLA's MLIR emitters of fusions another third.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_use_fusion_emitters=false"
)
os.environ["XLA_FLAGS"] += " --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

from jaxtyping import install_import_hook
from support.shape_checks import modules_with_shapes

# The checks of a call take tens of microseconds, so only modules that annotate shapes have them;
# pyright checks all other types.
install_import_hook(modules_with_shapes(), "beartype.beartype")

from collections.abc import Iterator  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import pytest  # noqa: E402

from agentrl_jax.storage import trust  # noqa: E402

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)
trust.trust("support")  # run folders of tests name its environments
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="session")
def ray_here() -> Iterator[Any]:
    """A Ray cluster of this machine; tests that need it are skipped where Ray is not installed."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-extras does it")
    ray.init(
        address="local",
        num_cpus=8,
        num_gpus=0,
        object_store_memory=80 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    yield ray
    ray.shutdown()
