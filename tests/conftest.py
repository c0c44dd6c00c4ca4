"""Tests run on eight fake CPU devices, with checked shapes and without promotion."""

import os
import signal
from importlib.metadata import version
from pathlib import Path

# Processes share compiled programs: tests start many that compile the same. Counters of
# compilations count a cached program too.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
# Tests compile much and compute little: unoptimized CPU code takes a third less time in all, and
# without XLA's MLIR emitters of fusions another third. Newer versions end the process at that flag.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10.")
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

from agentrl_jax.launch.garbage_collection import collect_seldom  # noqa: E402
from agentrl_jax.storage import trust  # noqa: E402

# A shell's background job ignores Ctrl-C, and so would the processes that tests start and stop.
signal.signal(signal.SIGINT, signal.default_int_handler)
trust.trust("support")  # run folders of tests name its environments
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# They start first, so that at the end no process has a long file left and the other ones none.
LONGEST = (
    "distributed/test_multi_process_runs.py",
    "training/test_agents.py",
    "models/test_quantized.py",
    "test_examples.py",
    "distributed/test_multi_process_updates.py",
    "distributed/test_hierarchical_runs.py",
    "algorithms/methods/test_methods_under_limits.py",
    "launch/benchmarks/test_bench.py",
    "configs/test_configs_under_limits.py",
    "launch/test_resume.py",
    "capture/test_captured.py",
    "learner/test_learner.py",
    "learner/test_optimizer_shardings.py",
    "models/hf/test_configs.py",
    "training/test_rejection_sampling.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Collections, and what the imports left in each, are 5 to 10 % of all time."""
    collect_seldom()


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
