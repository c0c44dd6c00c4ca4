"""The comparisons of `agentrl-bench look_up_methods`, on databases, tables and search.

Ten seeds a side find a difference of one standard deviation of the paired differences with a power
of 80 %. Each comparison has the one measure that is named here.
"""

from agentrl_jax.launch.benchmarks.claims.comparison import (
    TEN_SEEDS,
    Comparison,
    Side,
    variant_comparison,
)
from agentrl_jax.launch.sweeps.measures import area_under_curve

SUCCESS = area_under_curve("rollout/success")

LOOK_UP_COMPARISONS = (
    Comparison(
        "mars_sql_turns",
        "MARS-SQL, arXiv 2511.01008",
        "With queries in between, RL answers more questions than in one turn.",
        Side("configs/sql_mars.py:one_turn", phase="rl"),
        Side("configs/sql_mars.py", phase="rl"),
        TEN_SEEDS,
    ),
    Comparison(
        "datamind_constant",
        "DataMind, arXiv 2509.25084",
        "A weight of imitation that decays ends higher than one that stays at .9.",
        Side("configs/table_datamind.py:constant"),
        Side("configs/table_datamind.py"),
        TEN_SEEDS,
    ),
    Comparison(
        "datamind_rl",
        "DataMind, arXiv 2509.25084",
        "A weight of imitation that decays ends higher than RL alone.",
        Side("configs/table_datamind.py:rl"),
        Side("configs/table_datamind.py"),
        TEN_SEEDS,
    ),
    Comparison(
        "selfplay_check",
        "Search Self-play, arXiv 2510.18821",
        "Without the check of the proposer's questions the solver gets worse.",
        Side("configs/search_selfplay.py:unchecked"),
        Side("configs/search_selfplay.py"),
        TEN_SEEDS,
    ),
    Comparison(
        "planner_reward",
        "AI-SearchPlanner, arXiv 2508.20368",
        "Gain by the plan and its judgement beat the gain over naive retrieval.",
        Side("configs/search_planner.py:s3"),
        Side("configs/search_planner.py"),
        TEN_SEEDS,
    ),
    variant_comparison(
        "search_igpo",
        "search_igpo",
        "IGPO, arXiv 2510.14967",
        "A reward for the information that a search gains beats the outcome alone.",
        seeds=TEN_SEEDS,
        measure=SUCCESS,
    ),
    variant_comparison(
        "search_arpo",
        "search_arpo",
        "ARPO, arXiv 2507.19849",
        "Branches where the policy is uncertain make more episodes succeed.",
        seeds=TEN_SEEDS,
        measure=SUCCESS,
    ),
    variant_comparison(
        "search_aepo",
        "search_aepo",
        "AEPO, arXiv 2510.14545",
        "Balanced branches and advantages scaled by entropy beat those of ARPO.",
        seeds=TEN_SEEDS,
        measure=SUCCESS,
    ),
    variant_comparison(
        "search_inspo",
        "search_inspo",
        "INSPO, arXiv 2512.01945",
        "Instructions that evolve make more episodes succeed than none.",
        seeds=TEN_SEEDS,
        measure=SUCCESS,
    ),
    variant_comparison(
        "search_supo",
        "search_supo",
        "SUPO, arXiv 2510.06727",
        "Summaries beat a window that cuts the episode off.",
        seeds=TEN_SEEDS,
        by_construction=True,
    ),
    Comparison(
        "search_supo_double",
        "SUPO, arXiv 2510.06727",
        "Summaries beat a window of twice the length.",
        Side("configs/search_supo.py:double"),
        Side("configs/search_supo.py"),
        TEN_SEEDS,
    ),
)
