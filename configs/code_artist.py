"""ARTIST (arXiv 2505.01441): GRPO with tool outputs masked, on composite or outcome rewards.

The composite reward has an answer of 2, a format up to 1 and the share of calls that succeed; all
parts are on record in both variants. `:outcome` trains on the answer alone, `:smoke` takes two
steps of each phase. `:pair` trains both from one fine-tuning.

Hardware: 2 CPU cores; time: about 6 minutes for `:pair`; score: docs/code.md

    agentrl-train --config=configs/code_artist.py[:outcome|pair]
"""

from functools import partial

from agentrl_jax.algorithms.methods import artist
from agentrl_jax.configs.code_task import TRAINING_SETTINGS, code_experiment
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.training.config import Experiment

PARTS = {"answer": 1.0, "format": 1.0, "tool": 1.0}


@partial(with_pair, base="outcome", method="composite")
def get_config(variant: str = "composite") -> Experiment:
    weights = pick(variant, "code_artist", composite=PARTS, outcome={"answer": 1.0}, smoke=PARTS)
    smoke = variant == "smoke"
    return code_experiment(
        f"code-artist-{variant}",
        artist(weights, **TRAINING_SETTINGS),
        rollouts(tasks=2 if smoke else 8, group_size=4),
        {"protocol": "artist", "reward": "artist"},
        smoke,
    )
