"""The pages about comparisons of methods: their tables are those of the cached cells, and the sides
of a comparison differ in the method alone.
"""

from pathlib import Path

import pytest

from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.code_claims import CodeMethods
from agentrl_jax.launch.benchmarks.look_up_claims import LookUpMethods
from agentrl_jax.launch.benchmarks.method_claims import TABLES, Methods
from agentrl_jax.launch.benchmarks.vision_claims import VisionMethods
from agentrl_jax.launch.benchmarks.world_claims import WorldMethods
from agentrl_jax.launch.sweeps.grid import load_experiment

ROOT = Path(__file__).parents[3]
BENCHES: tuple[type[Methods], ...] = (CodeMethods, LookUpMethods, VisionMethods, WorldMethods)
ALL_COMPARISONS = [comparison for bench in BENCHES for comparison in bench.comparisons]


@pytest.mark.parametrize("bench", BENCHES)
def test_the_pages_tables_are_those_of_the_cached_cells(bench: type[Methods]):
    page, cached = ROOT / bench().page, ROOT / bench().folder
    for section, table in TABLES.items():
        assert doc_tables.read_section(page, section) == table(bench.comparisons, cached)


@pytest.mark.parametrize("comparison", ALL_COMPARISONS, ids=lambda comparison: comparison.name)
def test_the_sides_of_a_comparison_differ_in_the_method_alone(comparison: Comparison):
    """They have five or ten seeds, and the same training before the method."""
    (_, base_cell), (_, method_cell) = [*comparison.cells(Path())][:2]
    base, method = load_experiment(base_cell), load_experiment(method_cell)
    base_name, method_name = (
        side.phase or list(experiment.phases)[-1]
        for side, experiment in ((comparison.base, base), (comparison.method, method))
    )
    trained, expected = method.phases[method_name], base.phases[base_name]
    assert (trained, method) != (expected, base) and trained.steps == expected.steps
    measured = {base_name, method_name}
    others = [
        {name: phase for name, phase in experiment.phases.items() if name not in measured}
        for experiment in (base, method)
    ]
    assert others[0] == others[1] and base.phases.keys() == method.phases.keys()
    assert base.seed == method.seed and len(comparison.seeds) in (5, 10)
    assert base.policy == method.policy
    assert base.evaluation.episodes == method.evaluation.episodes
