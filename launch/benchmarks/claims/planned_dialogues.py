"""Planned comparisons of REFUEL's pairs; see `planned` for how they were planned.

The dialogues of docs/refuel.md, where the older table of three seeds says nothing certain of these
two. Losses are compared in dialogues of five turns; histories in those of four over twice the
steps, since in five turns the first ten seeds differed by .08 with a standard deviation of .15.
That pairs which differ in the last reply alone teach nobody to ask first is so by construction, and
not tested.
"""

from agentrl_jax.launch.benchmarks.claims.comparison import SECOND_TEN, Comparison, Side
from agentrl_jax.launch.sweeps.measures import final_return

REFUEL = "configs/dialogue_refuel.py"
FIVE_TURNS = {"environment.options.horizon": "5", "evaluation.episodes": "512"}
TWICE_THE_STEPS = {"phases.rl.steps": "80", "evaluation.episodes": "512"}
OLDER_TABLE = (0, 1, 2)

PLANNED_DIALOGUES = (
    Comparison(
        "refuel_histories",
        "REFUEL, arXiv 2410.04612",
        "Pairs on the policy's own histories give a higher return than on those of the data.",
        Side(f"{REFUEL}:multi_turn_mixed", TWICE_THE_STEPS),
        Side(REFUEL, TWICE_THE_STEPS),
        seeds=tuple(range(20, 30)),
        tuning_seeds=(*OLDER_TABLE, *SECOND_TEN, 100),
        measure=final_return,
    ),
    Comparison(
        "refuel_dpo",
        "REFUEL, arXiv 2410.04612",
        "Regression on the difference of rewards gives a higher return than DPO on its sign.",
        Side(f"{REFUEL}:refuel_dpo", FIVE_TURNS),
        Side(REFUEL, FIVE_TURNS),
        seeds=SECOND_TEN,
        tuning_seeds=OLDER_TABLE,
        measure=final_return,
    ),
)
