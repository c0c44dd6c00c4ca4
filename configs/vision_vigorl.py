"""ViGoRL (arXiv 2505.23678): points and a zoom around them, against points alone and no points.

How many dots has an object? The zoom alone shows them. A turn names points in its thought, then
calls `search_coordinate` or answers. After a fine-tuning on a scripted policy, half of whose turns
are random, the policy imitates what a Monte Carlo tree search over its own turns finds, corrected
episodes among it; the system searches with a model of 72 billion weights. `:points` has one turn
with points and the reward of that, `:direct` one turn and the answer's reward; all begin with the
same fine-tuning, a third of whose demonstrations are of each kind. `:smoke` takes two steps of each
phase.

Hardware: 1 CPU core; time: 10 minutes of `:pair`; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_vigorl.py[:points]
"""

import dataclasses
from functools import partial
from typing import Any

from agentrl_jax.algorithms.methods import vigorl
from agentrl_jax.algorithms.strategies.monte_carlo_tree_search import (
    InsertAfter,
    MonteCarloTreeSearch,
)
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.configs.vision_task import VisionTask, vision_experiment
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.mixture import Mixture
from agentrl_jax.training.sources import Rollouts

TASK = VisionTask(
    "SceneQuestions-v0",
    {
        "kinds": ("count",),
        "size": 240,
        "view": 56,
        "objects": 6,
        "zoom_half": 28,
        "horizon": 3,
    },
    player="weak",
    length=512,
    images=3,
    budget=64,
    steps=16,
)
ZOOM: dict[str, Any] = {"protocol": "vigorl", "reward": "vigorl"}
POINTS: dict[str, Any] = {"protocol": "vigorl_single", "reward": "vigorl_single"}
DIRECT: dict[str, Any] = {"protocol": "direct", "reward": "outcome"}
DOUBT = InsertAfter("<think>", "Wait. ")  # our words


@partial(with_pair, base="points", direct="direct", method="zoom")
def get_config(variant: str = "zoom") -> Experiment:
    options = pick(variant, "vision_vigorl", zoom=ZOOM, points=POINTS, direct=DIRECT, smoke=ZOOM)
    smoke = variant == "smoke"
    config = vision_experiment(
        f"vision-vigorl-{variant}",
        TASK,
        vigorl(**TASK.settings(optimizer=AdamWConfig(1e-3, warmup_steps=3))),
        rollouts(tasks=2, group_size=4) if smoke else rollouts(tasks=8),
        smoke,
        options=options,
        demonstrated={
            "zoom": TASK.spec(**ZOOM),
            "points": TASK.spec(**POINTS),
            "direct": TASK.spec(**DIRECT),
        },
    )
    search = MonteCarloTreeSearch(episodes=8, correct=DOUBT)
    searched = Rollouts(2 if smoke else 16, search, Mixture({"zoom": TASK.spec(**ZOOM)}))
    # Words that it has not written before make the first gradients large.
    imitation = dataclasses.replace(TASK.cloning(), optimizer=AdamWConfig(2e-4, warmup_steps=10))
    warm_up = Phase("searched", searched, imitation, 2 if smoke else 12)
    config.phases = {"sft": config.phases["sft"], "search": warm_up, "rl": config.phases["rl"]}
    return config
