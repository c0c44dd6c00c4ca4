"""MGPO (arXiv 2507.05920): a box, its part of the image in detail, then the answer, against GRPO
with the answer at once; only answers are rewarded.

How many dots has an object? They are told apart in the crop alone. Both variants begin with the
same fine-tuning, whose demonstrations are half of two turns and half of one; a half of all boxes
and letters in them is random. The box has no reward; `benchmarks/studies/box_quality.py` measures
it step by step. `:one_turn` trains without the box, `:smoke` takes two steps of each phase.

Hardware: 1 CPU core; time: 3 minutes, 4 of `:pair`; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_mgpo.py[:one_turn]
"""

from functools import partial
from typing import Any

from agentrl_jax.algorithms.methods import mgpo
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.configs.vision_task import VisionTask, vision_experiment
from agentrl_jax.training.config import Experiment

TASK = VisionTask(
    "RegionQuestions-v0",
    {"kinds": ("count",), "size": 240, "view": 56, "objects": 6},
    player="weak",
    length=224,
    images=2,
    budget=64,
)


# The opening of one turn asks for the answer, so that the two kinds can be told apart.
TWO_TURNS: dict[str, Any] = {"turns": 2}
ONE_TURN: dict[str, Any] = {"turns": 1, "instruction": True}


@partial(with_pair, base="one_turn", method="two_turns")
def get_config(variant: str = "two_turns") -> Experiment:
    options = pick(variant, "vision_mgpo", two_turns=TWO_TURNS, one_turn=ONE_TURN, smoke=TWO_TURNS)
    smoke = variant == "smoke"
    return vision_experiment(
        f"vision-mgpo-{variant}",
        TASK,
        mgpo(**TASK.settings()),
        rollouts(tasks=2, group_size=4) if smoke else rollouts(),
        smoke,
        options=options,
        demonstrated={"two": TASK.spec(**TWO_TURNS), "one": TASK.spec(**ONE_TURN)},
    )
