"""CodeVision (arXiv 2512.03746): right a turned image with tools, then answer; the reward of the
process against the outcome's, and without its penalties.

Which object is at a corner of the upright image? The image is as it should be or turned by a
multiple of 90 degrees. Half of all turns of the demonstrations are random: needless rotations and
guesses. The tools are `rotate`, `flip` and `crop`; the system's own, programs in a sandbox, are the
environment's option `code`, whose texts are too long for a policy of this size. `:outcome` rewards
the answer alone, `:no_penalties` leaves out overuse and spurious operations, `:smoke` takes two
steps of each phase.

Hardware: one CPU core, 18 minutes for `:pair`; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_codevision.py[:outcome|no_penalties|pair|smoke]
"""

from functools import partial

from agentrl_jax.algorithms.methods import codevision
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.configs.vision_task import VisionTask, vision_experiment
from agentrl_jax.models.hf.shipped import TURNED_BASE_MODEL
from agentrl_jax.training.config import Experiment

TASK = VisionTask(
    "TransformedImages-v0",
    {
        "kinds": ("corner",),
        "corruptions": ("none", "rotate_90", "rotate_180", "rotate_270"),
        "size": 240,
        "view": 56,
        "objects": 6,
        "horizon": 3,
    },
    player="weak",
    length=480,
    images=3,
    budget=96,
    base=TURNED_BASE_MODEL,
)


@partial(with_pair, base="outcome", no_penalties="no_penalties", method="codevision")
def get_config(variant: str = "codevision") -> Experiment:
    reward = pick(
        variant,
        "vision_codevision",
        codevision="codevision",
        outcome="outcome",
        no_penalties="process",
        smoke="codevision",
    )
    smoke = variant == "smoke"
    return vision_experiment(
        f"vision-codevision-{variant}",
        TASK,
        codevision(**TASK.settings()),
        rollouts(tasks=2, group_size=4) if smoke else rollouts(tasks=8),
        smoke,
        options={"reward": reward},
    )
