"""Planned comparisons of replays where success is rare, and of branching; see `planned` for how
they were planned.

SPEAR's first ten seeds, +.12 with a standard deviation of .13, were too few for a p that Holm's
method multiplies by twenty-five; from them follow twenty new ones, which alone are compared.
"""

from agentrl_jax.launch.benchmarks.claims.comparison import TEN_SEEDS, paired_comparison
from agentrl_jax.launch.benchmarks.claims.measures import log_turns_until_level
from agentrl_jax.launch.benchmarks.claims.planned import SEEDS, SETTINGS
from agentrl_jax.launch.sweeps.measures import area_under_curve, mean_of_last

PLANNED_EXPLORATION = (
    paired_comparison(
        "spear",
        "keydoor_spear",
        "SPEAR, arXiv 2509.22601",
        "Self-imitation makes more episodes succeed.",
        SETTINGS,
        measure=mean_of_last("rollout/success", 8),
        seeds=tuple(range(20, 40)),
        tuning_seeds=(*TEN_SEEDS, 100, 101),
    ),
    paired_comparison(
        "arpo_success",
        "keydoor_arpo",
        "ARPO (GUI), arXiv 2505.16282",
        "With replay more episodes of the tasks it plays succeed.",
        SETTINGS,
        measure=area_under_curve("rollout/success"),
        **SEEDS,
    ),
    paired_comparison(
        "arpo_replay",
        "keydoor_arpo",
        "ARPO (GUI), arXiv 2505.16282",
        "A stored success gives all-failed groups a signal.",
        SETTINGS,
        measure=area_under_curve("groups_with_signal"),
        by_construction=True,
        **SEEDS,
    ),
    paired_comparison(
        "arpo_calls",
        "lookup_arpo",
        "ARPO, arXiv 2507.19849",
        "Branching reaches a success rate of 0.6 with fewer tool calls.",
        {
            **SETTINGS,
            "demonstrations.episodes": "4000",
            "phases.sft.source.batch": "32",
            "engine.rows": "128",
        },
        measure=log_turns_until_level("rollout/success", 0.6),
        higher_is_better=False,
        # Ten seeds were compared by the number of turns, which differs tenfold between seeds, and
        # ten by its logarithm: -.16 with a standard deviation of .17. From them follow thirty.
        seeds=tuple(range(20, 50)),
        tuning_seeds=(*range(20), 100, 101),
    ),
)
