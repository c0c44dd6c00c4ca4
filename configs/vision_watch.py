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
from agentrl_jax.configs.vision_base import PART, WHERE, further_trained
from agentrl_jax.training.config import Experiment

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
    config = further_trained("watch", WATCHED, SHARES, LENGTH, images=7, steps=STEPS, smoke=smoke)
    frame, image = VIDEO.image_patches, PAGE.image_patches
    config.engine = dataclasses.replace(config.engine, image_patches=(frame, image))
    return config
