"""`vision_methods`: claims about policies that see, in docs/vision_systems.md."""

from dataclasses import dataclass
from typing import ClassVar

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.claims.vision_registry import VISION_COMPARISONS
from agentrl_jax.launch.benchmarks.method_claims import Methods
from agentrl_jax.launch.dataclass_flags import option


@dataclass
class VisionMethods(Methods):
    """As `methods`, with the comparisons of docs/vision_systems.md."""

    runs: str = option("runs/vision_methods", "The folder of the run folders.")
    folder: str = option("benchmarks/results/vision", "The folder of the cached cells.")
    page: str = option("docs/vision_systems.md", "The page with the tables.")
    comparisons: ClassVar[tuple[Comparison, ...]] = VISION_COMPARISONS
