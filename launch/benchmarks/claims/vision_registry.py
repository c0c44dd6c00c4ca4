"""The comparisons of `agentrl-bench vision_methods`, of policies that see.

Ten seeds a side find a difference of one standard deviation of the paired differences with a power
of 80 %. Each comparison has the one measure that is named here.
"""

from agentrl_jax.launch.benchmarks.claims.comparison import TEN_SEEDS, Comparison, Side
from agentrl_jax.launch.sweeps.measures import area_under_curve, mean_of_last

SUCCESS = area_under_curve("rollout/success")

VISION_COMPARISONS = (
    Comparison(
        "mgpo",
        "MGPO, arXiv 2507.05920",
        "A box and its crop before the answer beat the answer at once.",
        Side("configs/vision_mgpo.py:one_turn"),
        Side("configs/vision_mgpo.py"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "vigorl",
        "ViGoRL, arXiv 2505.23678",
        "Points with a zoom beat points alone.",
        Side("configs/vision_vigorl.py:points"),
        Side("configs/vision_vigorl.py"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "codevision_process",
        "CodeVision, arXiv 2512.03746",
        "The reward of the process beats the outcome alone.",
        Side("configs/vision_codevision.py:outcome"),
        Side("configs/vision_codevision.py"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "codevision_penalties",
        "CodeVision, arXiv 2512.03746",
        "Penalties stop needless operations, so that episodes have fewer turns.",
        Side("configs/vision_codevision.py:no_penalties"),
        Side("configs/vision_codevision.py"),
        TEN_SEEDS,
        mean_of_last("rollout/turns", 10),
        higher_is_better=False,
    ),
    Comparison(
        "framethinker",
        "FrameThinker, arXiv 2509.24304",
        "Frames that the policy chooses beat as many uniform ones.",
        Side("configs/vision_framethinker.py:uniform"),
        Side("configs/vision_framethinker.py"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "vrag_retrieval",
        "VRAG-RL, arXiv 2505.22019",
        "NDCG of the pages in the reward raises success.",
        Side("configs/vision_vrag.py:no_retrieval"),
        Side("configs/vision_vrag.py"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "metaspatial_spo",
        "MetaSpatial, arXiv 2503.18470",
        "3D-SPO leaves fewer collisions than GRPO: its part of the reward is nearer to 0.",
        Side("configs/vision_metaspatial.py:grpo"),
        Side("configs/vision_metaspatial.py"),
        TEN_SEEDS,
        mean_of_last("rollout/reward/collision", 10),
    ),
)
