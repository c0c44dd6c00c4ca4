"""The small model that watches, further trained on layouts of rooms.

Next-token prediction of scripted experts' episodes as in `vision_base.py`, from
`agentrl/watch-600k`: MetaSpatial's layouts in one turn and in two (`RoomLayouts`), and a few of the
captions that it knows. It is exported with `agentrl_jax.launch.export` and ships as
`agentrl/furnish-600k` (docs/vision_systems.md).

Hardware: one CPU core, 16 minutes; score: docs/vision_systems.md

    agentrl-train --config=configs/vision_furnish.py --run_dir=runs/vision_furnish
"""

from agentrl_jax.configs import vision_metaspatial
from agentrl_jax.configs.small import pick
from agentrl_jax.configs.vision_base import WHERE, further_trained
from agentrl_jax.models.hf.shipped import VIDEO_BASE_MODEL
from agentrl_jax.training.config import Experiment

ROOM = vision_metaspatial.TASK
FURNISHED = {"where": WHERE, "one_turn": ROOM.spec(turns=1), "refined": ROOM.spec(turns=2)}
SHARES = {"one_turn": 12, "refined": 4}  # of the other 1
STEPS = 600


def get_config(variant: str = "full") -> Experiment:
    smoke = pick(variant, "vision_furnish", full=False, smoke=True)
    return further_trained(
        "furnish",
        FURNISHED,
        SHARES,
        ROOM.length,
        images=2,
        steps=STEPS,
        smoke=smoke,
        base=VIDEO_BASE_MODEL,
    )
