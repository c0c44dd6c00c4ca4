"""The small model that sees, further trained on images that are turned.

Next-token prediction of scripted experts' episodes as in `vision_base.py`, from `agentrl/see-600k`:
which object is nearest to a corner (`SceneCaptions`), the same in a turned image that the expert
rights first (`TransformedImages`), and a few of the images that it knows. It is exported with
`agentrl_jax.launch.export` and ships as `agentrl/turn-600k` (docs/vision_systems.md).

Hardware: one CPU core, 30 minutes; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_turn.py --run_dir=runs/vision_turn
"""

from agentrl_jax.configs import vision_codevision
from agentrl_jax.configs.small import pick
from agentrl_jax.configs.vision_base import CAPTIONS, PART, WHERE, further_trained
from agentrl_jax.training.config import Experiment

TURNED = {
    "where": WHERE,
    "part": PART,
    "corner": CAPTIONS.spec(kinds=("corner",)),
    "transformed": vision_codevision.TASK.spec(),
}
SHARES = {"corner": 4, "transformed": 4}  # of the others 1
LENGTH = vision_codevision.TASK.length  # the longest episodes
STEPS = 1400


def get_config(variant: str = "full") -> Experiment:
    smoke = pick(variant, "vision_turn", full=False, smoke=True)
    return further_trained("turn", TURNED, SHARES, LENGTH, images=5, steps=STEPS, smoke=smoke)
