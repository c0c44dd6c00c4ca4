"""The tables of a page about comparisons, and what their two sides share."""

from collections.abc import Sequence
from pathlib import Path

from agentrl_jax.launch import doc_tables
from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.method_claims import TABLES
from agentrl_jax.launch.sweeps.grid import load_experiment


def check_comparison_tables(page: Path, comparisons: Sequence[Comparison], cached: Path) -> None:
    """The page's tables are those of the cached cells."""
    for section, table in TABLES.items():
        assert doc_tables.read_section(page, section) == table(comparisons, cached)


def check_sides(comparison: Comparison) -> None:
    """The sides, of five or ten seeds, differ, and not in training before the method."""
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
