"""The small model that sees, further trained on images that are turned.

Next-token prediction of scripted experts' episodes as in `vision_base.py`, from `agentrl/see-600k`:
which object is nearest to a corner (`SceneCaptions`), the same in a turned image that the expert
rights first (`TransformedImages`), and a few of the images that it knows. It is exported with
`agentrl_jax.launch.export` and ships as `agentrl/turn-600k` (docs/vision_systems.md).

Hardware: one CPU core, 30 minutes; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_turn.py --run_dir=runs/vision_turn
"""

import dataclasses

from agentrl_jax.configs import vision_codevision
from agentrl_jax.configs.small import pick
from agentrl_jax.configs.vision_base import CAPTIONS, PART, WHERE, cloning, examples
from agentrl_jax.configs.vision_base import get_config as get_base_config
from agentrl_jax.learner.learning_rate import StableThenLinear
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import VISION_BASE_MODEL
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.mixture import Mixture

TURNED = {
    "where": WHERE,
    "part": PART,
    "corner": CAPTIONS.spec(kinds=("corner",)),
    "transformed": vision_codevision.TASK.spec(),
}
SHARES = {"where": 1, "part": 1, "corner": 4, "transformed": 4}
LENGTH = vision_codevision.TASK.length  # the longest episodes
STEPS = 1400


def get_config(variant: str = "full") -> Experiment:
    smoke = pick(variant, "vision_turn", full=False, smoke=True)
    config = get_base_config("smoke" if smoke else "full")
    rate = AdamWConfig(1e-3, 20, 0.05, decay=StableThenLinear(0.4))
    turning = cloning(rate, 6, dataclasses.replace(CAPTIONS, length=LENGTH, images=5))
    config.name = "vision-turn"
    config.policy = PretrainedDecoder(VISION_BASE_MODEL)
    mixture = Mixture(TURNED, SHARES)
    config.phases = {
        "turning": Phase("turning", examples(24, mixture), turning, 2 if smoke else STEPS, 250)
    }
    config.evaluation = dataclasses.replace(
        config.evaluation, environments={"where": WHERE} if smoke else TURNED
    )
    return config
