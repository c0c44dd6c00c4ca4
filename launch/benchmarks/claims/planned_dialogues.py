"""Planned comparisons of REFUEL's pairs; see `planned` for how they were planned.

The dialogues of docs/refuel.md with five turns, where the older table of three seeds says nothing
certain of these two. That pairs which differ in the last reply alone teach nobody to ask first is
so by construction, and not tested.
"""

from typing import Any

from agentrl_jax.launch.benchmarks.claims.comparison import TEN_SEEDS, Comparison, Side
from agentrl_jax.launch.sweeps.measures import final_return

REFUEL = "configs/dialogue_refuel.py"
FIVE_TURNS = {"environment.options.horizon": "5", "evaluation.episodes": "512"}
SHARED: dict[str, Any] = {
    "method": Side(REFUEL, FIVE_TURNS),
    "seeds": tuple(seed + 10 for seed in TEN_SEEDS),
    "tuning_seeds": (0, 1, 2),  # of the older table
    "measure": final_return,
}

PLANNED_DIALOGUES = (
    Comparison(
        "refuel_histories",
        "REFUEL, arXiv 2410.04612",
        "Pairs on the policy's own histories give a higher return than on those of the data.",
        Side(f"{REFUEL}:multi_turn_mixed", FIVE_TURNS),
        **SHARED,
    ),
    Comparison(
        "refuel_dpo",
        "REFUEL, arXiv 2410.04612",
        "Regression on the difference of rewards gives a higher return than DPO on its sign.",
        Side(f"{REFUEL}:refuel_dpo", FIVE_TURNS),
        **SHARED,
    ),
)
