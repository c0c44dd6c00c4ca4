"""The comparisons of `agentrl-bench look_up_methods`, on databases, tables and search.

Five seeds a side find a difference of 1.7 standard deviations of the paired differences with a
power of 80 %. Each comparison has the one measure that is named here. Where a config has a variant
`pair`, and in `search_methods.py`, all sides of a seed start from the same fine-tuned weights, in
one run. The settings were chosen by runs of seeds 100 and 101, those of DataMind also by 0 and 1.
"""

from typing import Any

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison, Side, paired_comparison
from agentrl_jax.launch.sweeps.measures import (
    Measure,
    area_under_curve,
    final_success,
    mean_of_last,
)

SEEDS: dict[str, Any] = {"seeds": tuple(range(5)), "tuning_seeds": (100, 101)}
SUCCESS = area_under_curve("rollout/success")
LATE_SUCCESS = mean_of_last("rollout/success", 6)
DATAMIND = "configs/table_datamind.py:pair"
DATAMIND_SEEDS: dict[str, Any] = {"seeds": (2, 3, 4, 5, 6), "tuning_seeds": (0, 1, 100, 101)}


def search_comparison(
    base: str, method: str, paper: str, claim: str, measure: Measure
) -> Comparison:
    """Two phases of `search_methods.py`."""
    base_side, side = (Side("configs/search_methods.py", phase=phase) for phase in (base, method))
    return Comparison(f"search_{method}", paper, claim, base_side, side, **SEEDS, measure=measure)


LOOK_UP_COMPARISONS = (
    Comparison(
        "mars_sql_turns",
        "MARS-SQL, arXiv 2511.01008",
        "With queries in between, RL answers more questions than in one turn.",
        Side("configs/sql_mars.py:one_turn", phase="rl"),
        Side("configs/sql_mars.py:turns", phase="rl"),
        **SEEDS,
    ),
    Comparison(
        "datamind_constant",
        "DataMind, arXiv 2509.25084",
        "A weight of imitation that decays ends higher than one that stays at .9.",
        Side(DATAMIND, phase="constant"),
        Side(DATAMIND, phase="method"),
        **DATAMIND_SEEDS,
        measure=LATE_SUCCESS,
    ),
    paired_comparison(
        "datamind_rl",
        "table_datamind",
        "DataMind, arXiv 2509.25084",
        "A weight of imitation that decays ends higher than RL alone.",
        **DATAMIND_SEEDS,
        measure=LATE_SUCCESS,
    ),
    paired_comparison(
        "selfplay_check",
        "search_selfplay",
        "Search Self-play, arXiv 2510.18821",
        "Without the check of the proposer's questions the solver gets worse.",
        **SEEDS,
    ),
    paired_comparison(
        "planner_reward",
        "search_planner",
        "AI-SearchPlanner, arXiv 2508.20368",
        "Gain by the plan and its judgement beat the gain over naive retrieval.",
        **SEEDS,
    ),
    search_comparison(
        "igpo_base",
        "igpo",
        "IGPO, arXiv 2510.14967",
        "A reward for the information that a search gains beats the outcome alone.",
        SUCCESS,
    ),
    search_comparison(
        "arpo_base",
        "arpo",
        "ARPO, arXiv 2507.19849",
        "Branches where the policy is uncertain make more episodes succeed.",
        final_success,  # branches are no independent episodes
    ),
    search_comparison(
        "arpo",
        "aepo",
        "AEPO, arXiv 2510.14545",
        "Balanced branches and advantages scaled by entropy beat those of ARPO.",
        final_success,
    ),
    paired_comparison(
        "search_inspo",
        "search_inspo",
        "INSPO, arXiv 2512.01945",
        "Instructions that evolve make more episodes succeed than none.",
        **SEEDS,
        measure=SUCCESS,
    ),
    Comparison(
        "search_supo",
        "SUPO, arXiv 2510.06727",
        "Summaries beat a window that cuts the episode off.",
        Side("configs/search_supo.py:base"),
        Side("configs/search_supo.py"),
        **SEEDS,
        by_construction=True,
    ),
    Comparison(
        "search_supo_double",
        "SUPO, arXiv 2510.06727",
        "Summaries beat a window of twice the length.",
        Side("configs/search_supo.py:double"),
        Side("configs/search_supo.py"),
        **SEEDS,
    ),
)
