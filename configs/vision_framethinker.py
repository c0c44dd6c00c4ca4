"""FrameThinker (arXiv 2509.24304): frames of a video that the policy chooses, against uniform ones.

Which object is shown at a time? The opening shows 4 of 64 frames; the policy asks for the frame of
the time, chooses a range of which it sees 8, and answers. The reward is gated by consistency and
has the released bonuses. `:paper` has the paper's bonuses, `:outcome` none and no gate,
`:unconditional` rewards actions in wrong answers too, `:format` adds a reward of the format; the
paper reports that the last two fail. `:uniform` shows 12 uniform frames, as many as a choice gives,
and only answers. All begin with the same fine-tuning, half of it with each kind of frames. `:video`
is the default with the frames that are shown at once as one video. `:smoke` and `:video_smoke` take
two steps of each phase.

Hardware: 1 CPU core; time: 8 minutes of `:pair`; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_framethinker.py[:uniform]
"""

import dataclasses
from functools import partial
from typing import Any

from agentrl_jax.algorithms.methods import framethinker
from agentrl_jax.configs.small import pick, rollouts, with_pair
from agentrl_jax.configs.vision_task import VisionTask, vision_experiment
from agentrl_jax.models.hf.shipped import VIDEO_BASE_MODEL
from agentrl_jax.training.config import Experiment

TASK = VisionTask(
    "VideoQuestions-v0",
    {"kinds": ("time",), "view": 28, "frames": 64, "horizon": 3},
    player="weak",
    length=512,
    images=20,
    budget=112,
    image_patches=16,
    base=VIDEO_BASE_MODEL,
)
CHOSEN: dict[str, Any] = {"opening_frames": 4}
# The opening of uniform frames asks for the answer, so that the two kinds can be told apart.
UNIFORM: dict[str, Any] = {
    "opening_frames": 12,
    "choose": False,
    "reward": "outcome",
    "instruction": True,
}


@partial(with_pair, base="uniform", method="released")
def get_config(variant: str = "released") -> Experiment:
    options = pick(
        variant,
        "vision_framethinker",
        released=CHOSEN,
        paper={**CHOSEN, "reward": "paper"},
        outcome={**CHOSEN, "reward": "outcome"},
        unconditional={**CHOSEN, "reward": "unconditional"},
        format={**CHOSEN, "reward": "format"},
        uniform=UNIFORM,
        video=CHOSEN,
        smoke=CHOSEN,
        video_smoke=CHOSEN,
    )
    smoke, task = variant.endswith("smoke"), TASK
    if variant.startswith("video"):
        options_of_video = {**TASK.options, "as_video": True}
        task = dataclasses.replace(TASK, options=options_of_video, videos=True, length=576)
    return vision_experiment(
        f"vision-framethinker-{variant}",
        task,
        framethinker(**task.settings()),
        rollouts(tasks=2, group_size=4) if smoke else rollouts(tasks=8),
        smoke,
        options=options,
        demonstrated={"chosen": task.spec(**CHOSEN), "uniform": task.spec(**UNIFORM)},
    )
