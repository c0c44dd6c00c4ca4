"""The comparisons of `agentrl-bench code_methods`, on problems that are solved with code.

Ten seeds a side find a difference of one standard deviation of the paired differences with a power
of 80 %. Each comparison has the one measure that is named here.
"""

from agentrl_jax.launch.benchmarks.claims.comparison import TEN_SEEDS, Comparison, Side
from agentrl_jax.launch.sweeps.measures import area_under_curve, maximum, mean_of_last

SUCCESS = area_under_curve("rollout/success")

CODE_COMPARISONS = (
    Comparison(
        "mint_feedback",
        "MINT, arXiv 2309.10691",
        "Feedback of a critic that knows the answer raises success.",
        Side("configs/code_mint.py"),
        Side("configs/code_mint.py:feedback"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "retool",
        "ReTool, arXiv 2504.11536",
        "RL with code beats RL on texts alone from the same start.",
        Side("configs/code_retool.py:text"),
        Side("configs/code_retool.py"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "simpletir_code",
        "SimpleTIR, arXiv 2509.02479",
        "Masking void trajectories removes gradient spikes.",
        Side("configs/code_simpletir.py:base"),
        Side("configs/code_simpletir.py"),
        TEN_SEEDS,
        maximum("gradient_spike"),
        higher_is_better=False,
    ),
    Comparison(
        "r1ci_stages",
        "R1-Code-Interpreter, arXiv 2505.21668",
        "Stages by potential beat uniform draws on held-out texts.",
        Side("configs/code_r1ci.py:uniform"),
        Side("configs/code_r1ci.py"),
        TEN_SEEDS,
    ),
    Comparison(
        "artist_composite",
        "ARTIST, arXiv 2505.01441",
        "A reward of answer, format and tool calls beats the outcome alone.",
        Side("configs/code_artist.py:outcome"),
        Side("configs/code_artist.py"),
        TEN_SEEDS,
        SUCCESS,
    ),
    Comparison(
        "spear_code",
        "SPEAR, arXiv 2509.22601",
        "Self-imitation and a reward for tool use raise success late in the run.",
        Side("configs/code_spear.py:base"),
        Side("configs/code_spear.py"),
        TEN_SEEDS,
        mean_of_last("rollout/success", 13),
    ),
)
