"""`world_methods`: claims on text worlds in their own engines, in docs/world_methods.md."""

from dataclasses import dataclass
from typing import ClassVar

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.world_registry import WORLD_COMPARISONS
from agentrl_jax.launch.benchmarks.method_claims import Methods
from agentrl_jax.launch.dataclass_flags import option


@dataclass
class WorldMethods(Methods):
    """As `methods`, with the comparisons of docs/world_methods.md."""

    runs: str = option("runs/world_methods", "The folder of the run folders.")
    folder: str = option("benchmarks/results/world", "The folder of the cached cells.")
    page: str = option("docs/world_methods.md", "The page with the tables.")
    comparisons: ClassVar[tuple[Comparison, ...]] = WORLD_COMPARISONS
