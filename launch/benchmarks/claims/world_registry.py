"""The comparisons of `agentrl-bench world_methods`, on text worlds in their own engines.

Five seeds a side find a difference of 1.7 standard deviations of the paired differences with a
power of 80 %. Each comparison has the one measure that is named here. Both sides of a seed start
from the same fine-tuned weights, in one run (the configs' variant `pair`). The settings were chosen
by runs of seed 100.
"""

from typing import Any

from agentrl_jax.launch.benchmarks.claims.comparison import paired_comparison
from agentrl_jax.launch.sweeps.measures import area_under_curve, mean_of_last

SEEDS: dict[str, Any] = {"seeds": tuple(range(1, 6)), "tuning_seeds": (100,)}
SUCCESS = area_under_curve("rollout/success")

WORLD_COMPARISONS = (
    paired_comparison(
        "guide_textworld",
        "textworld_guide",
        "A Practitioner's Guide, arXiv 2510.01132",
        "PPO learns faster from a reward for each turn's progress than from the outcome alone.",
        **SEEDS,
        measure=SUCCESS,
    ),
    paired_comparison(
        "gigpo_alfworld",
        "alfworld_gigpo",
        "GiGPO, arXiv 2505.10978",
        "Comparing steps in the same state beats the episode's advantage alone.",
        **SEEDS,
        measure=SUCCESS,
    ),
    paired_comparison(
        "spear_alfworld",
        "alfworld_spear",
        "SPEAR, arXiv 2509.22601",
        "Self-imitation raises success late in the run.",
        **SEEDS,
        measure=mean_of_last("rollout/success", 8),
    ),
    paired_comparison(
        "epo_alfworld",
        "alfworld_epo",
        "EPO, arXiv 2509.22576",
        "A band around earlier entropy beats the same entropy bonus without one.",
        **SEEDS,
        measure=mean_of_last("rollout/success", 8),
    ),
)
