"""Systems that search for what they answer (docs/search.md)."""

from agentrl_jax.launch.benchmarks.systems.system import System

ENVIRONMENTS = ("SearchQuestions",)
SEARCH_SYSTEMS = (
    System(
        "Search-R1",
        "2503.09516",
        "`SearchQuestions` with its tags, observations without loss",
        "Wikipedia with dense passages, questions of seven data sets",
        ("search_r1",),
        ("search_r1.py",),
        "own kind",
        ENVIRONMENTS,
    ),
)
