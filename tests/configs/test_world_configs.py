"""The experiments on text worlds: the sides of a comparison differ in the method alone, and where
the packages are installed demonstrations fit the sizes.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.comparison_tables import check_comparison_tables, check_sides
from support.demonstrated import demonstrations

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.world_registry import WORLD_COMPARISONS

ROOT = Path(__file__).parents[2]
PACKAGES = {"textworld_guide": "textworld", "alfworld_gigpo": "alfworld"}


@pytest.mark.parametrize("comparison", WORLD_COMPARISONS, ids=lambda x: x.name)
def test_the_sides_of_a_comparison_differ_in_the_method_alone(comparison: Comparison):
    check_sides(comparison)


def test_the_pages_tables_of_comparisons_are_those_of_the_cached_cells():
    page, cached = ROOT / "docs" / "world_methods.md", ROOT / "benchmarks" / "results" / "world"
    check_comparison_tables(page, WORLD_COMPARISONS, cached)


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_demonstrations_fit_the_sizes(name: str):
    pytest.importorskip(PACKAGES[name], reason=f"{PACKAGES[name]} is not installed")
    experiment = import_module(f"agentrl_jax.configs.{name}").get_config()
    method: Any = experiment.phases["rl"].algorithm
    lengths = [trajectory.calls[-1].length for trajectory in demonstrations(experiment, 60)]
    assert max(lengths) <= method.bin_length == experiment.engine.positions
    assert experiment.phases["sft"].algorithm.bin_length == method.bin_length
