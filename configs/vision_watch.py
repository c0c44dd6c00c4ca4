"""The small model that sees, further trained on videos, pages and rooms.

Next-token prediction of scripted experts' episodes as in `vision_base.py`, from `agentrl/see-600k`:
frames that are chosen or uniform (`VideoQuestions`), charts that a search finds (`PageQuestions`),
layouts of rooms (`RoomLayouts`), and a few of the images and questions that it knows. It is
exported with `agentrl_jax.launch.export` and ships as `agentrl/watch-600k`
(docs/vision_systems.md).

Hardware: one CPU core, 45 minutes; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_watch.py --run_dir=runs/vision_watch
"""

import dataclasses

from agentrl_jax.configs import vision_framethinker, vision_metaspatial, vision_vrag
from agentrl_jax.configs.small import pick
from agentrl_jax.configs.vision_base import CAPTIONS, PART, WHERE, cloning, examples
from agentrl_jax.configs.vision_base import get_config as get_base_config
from agentrl_jax.learner.learning_rate import StableThenLinear
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.hf.pretrained import PretrainedDecoder
from agentrl_jax.models.hf.shipped import VISION_BASE_MODEL
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.mixture import Mixture

VIDEO, PAGE, ROOM = vision_framethinker.TASK, vision_vrag.TASK, vision_metaspatial.TASK
WATCHED = {
    "where": WHERE,
    "part": PART,
    "chosen": VIDEO.spec(**vision_framethinker.CHOSEN),
    "uniform": VIDEO.spec(**vision_framethinker.UNIFORM),
    "pages": PAGE.spec(crops=True),
    "refined": ROOM.spec(turns=2),
    "one_turn": ROOM.spec(turns=1),
}
SHARES = {"chosen": 5, "uniform": 2, "pages": 3, "one_turn": 6, "refined": 2}  # of the others 1
LENGTH = ROOM.length  # the longest episodes
STEPS = 1400


def get_config(variant: str = "full") -> Experiment:
    smoke = pick(variant, "vision_watch", full=False, smoke=True)
    config = get_base_config("smoke" if smoke else "full")
    mixture = Mixture(WATCHED, {name: SHARES.get(name, 1) for name in WATCHED})
    rate = AdamWConfig(1e-3, 20, 0.05, decay=StableThenLinear(0.4))
    watching = cloning(rate, 6, dataclasses.replace(CAPTIONS, length=LENGTH, images=7))
    config.name = "vision-watch"
    config.policy = PretrainedDecoder(VISION_BASE_MODEL)
    config.phases = {
        "watching": Phase("watching", examples(24, mixture), watching, 2 if smoke else STEPS, 250)
    }
    config.evaluation = dataclasses.replace(
        config.evaluation, environments={"where": WHERE} if smoke else WATCHED
    )
    frame, image = VIDEO.image_patches, PAGE.image_patches
    config.engine = dataclasses.replace(
        config.engine, positions=LENGTH, image_patches=(frame, image)
    )
    return config
