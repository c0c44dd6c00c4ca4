"""Comparisons whose claim, measure, settings and seeds were declared before a cell of them ran.

Ten seeds a side find a difference of one standard deviation of the paired differences with a power
of 80 %. Settings were chosen by two seeds that are not compared, for both sides alike.
"""

from typing import Any

from agentrl_jax.launch.benchmarks.claims.comparison import variant_comparison
from agentrl_jax.launch.sweeps.measures import area_under_curve, final_success

TEN_SEEDS: dict[str, Any] = {"seeds": tuple(range(10)), "tuning_seeds": (100, 101)}
SETTINGS = {"demonstrations.episodes": "1500", "evaluation.episodes": "1024"}

PLANNED = (
    variant_comparison(
        "ufo",
        "arithmetic_ufo",
        "UFO, arXiv 2507.14295",
        "More episodes of five attempts succeed than after RL on single attempts.",
        SETTINGS,
        measure=final_success,
        **TEN_SEEDS,
    ),
    variant_comparison(
        "igpo_success",
        "lookup_igpo",
        "IGPO, arXiv 2510.14967",
        "With information gain, more episodes of training succeed.",
        SETTINGS,
        measure=area_under_curve("rollout/success"),
        **TEN_SEEDS,
    ),
)
