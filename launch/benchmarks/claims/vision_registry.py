"""The comparisons of `agentrl-bench vision_methods`, of policies that see.

Five seeds a side find a difference of 1.7 standard deviations of the paired differences with a
power of 80 %. Each comparison has the one measure that is named here. The sides of a seed start
from the same fine-tuned weights, in one run (the variant `pair` of a config). The settings were
chosen by runs of seeds 0, 100 and 101.
"""

from typing import Any

from agentrl_jax.launch.benchmarks.claims.comparison import Comparison, Side, paired_comparison
from agentrl_jax.launch.benchmarks.claims.measures import layout_collisions
from agentrl_jax.launch.sweeps.measures import area_under_curve, mean_of_last

SEEDS: dict[str, Any] = {"seeds": tuple(range(1, 6)), "tuning_seeds": (0, 100, 101)}
SUCCESS: dict[str, Any] = {**SEEDS, "measure": area_under_curve("rollout/success")}
CODEVISION = "configs/vision_codevision.py:pair"

VISION_COMPARISONS = (
    paired_comparison(
        "mgpo",
        "vision_mgpo",
        "MGPO, arXiv 2507.05920",
        "A box and its crop before the answer beat the answer at once.",
        **SUCCESS,
    ),
    paired_comparison(
        "vigorl",
        "vision_vigorl",
        "ViGoRL, arXiv 2505.23678",
        "Points with a zoom beat points alone.",
        **SUCCESS,
    ),
    paired_comparison(
        "codevision_process",
        "vision_codevision",
        "CodeVision, arXiv 2512.03746",
        "The reward of the process beats the outcome alone.",
        **SUCCESS,
    ),
    Comparison(
        "codevision_penalties",
        "CodeVision, arXiv 2512.03746",
        "Penalties stop needless operations, so that episodes have fewer turns.",
        Side(CODEVISION, phase="no_penalties"),
        Side(CODEVISION, phase="method"),
        **SEEDS,
        measure=mean_of_last("rollout/turns", 10),
        higher_is_better=False,
    ),
    paired_comparison(
        "framethinker",
        "vision_framethinker",
        "FrameThinker, arXiv 2509.24304",
        "Frames that the policy chooses beat as many uniform ones.",
        **SUCCESS,
    ),
    paired_comparison(
        "vrag_retrieval",
        "vision_vrag",
        "VRAG-RL, arXiv 2505.22019",
        "NDCG of the pages in the reward raises success.",
        **SUCCESS,
    ),
    paired_comparison(
        "metaspatial_spo",
        "vision_metaspatial",
        "MetaSpatial, arXiv 2503.18470",
        "3D-SPO leaves fewer collisions than GRPO.",
        **SEEDS,
        measure=layout_collisions,
        higher_is_better=False,
    ),
)
