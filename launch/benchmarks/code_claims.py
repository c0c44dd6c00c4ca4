"""`code_methods`: claims on problems that are solved with code, in docs/code.md."""

from dataclasses import dataclass
from typing import ClassVar

from agentrl_jax.launch.benchmarks.claims.code_registry import CODE_COMPARISONS
from agentrl_jax.launch.benchmarks.claims.comparison import Comparison
from agentrl_jax.launch.benchmarks.method_claims import Methods
from agentrl_jax.launch.dataclass_flags import option


@dataclass
class CodeMethods(Methods):
    """As `methods`, with the comparisons of docs/code.md."""

    runs: str = option("runs/code_methods", "The folder of the run folders.")
    folder: str = option("benchmarks/results/code", "The folder of the cached cells.")
    page: str = option("docs/code.md", "The page with the tables.")
    comparisons: ClassVar[tuple[Comparison, ...]] = CODE_COMPARISONS
