"""`look_up_methods`: claims on databases, tables and search, in docs/search.md."""

from dataclasses import dataclass
from typing import ClassVar

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.look_up_registry import LOOK_UP_COMPARISONS
from agentrl_jax.launch.benchmarks.method_claims import Methods
from agentrl_jax.launch.dataclass_flags import option


@dataclass
class LookUpMethods(Methods):
    """As `methods`, with the comparisons of docs/search.md."""

    runs: str = option("runs/look_up_methods", "The folder of the run folders.")
    folder: str = option("benchmarks/results/look_up", "The folder of the cached cells.")
    page: str = option("docs/search.md", "The page with the tables.")
    comparisons: ClassVar[tuple[Comparison, ...]] = LOOK_UP_COMPARISONS
