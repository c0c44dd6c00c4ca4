"""ActiveVLN (arXiv 2509.12618) in rooms: GRPO on the distance at which the agent stops by itself.

Released: 15 (1 - d / 3) for stopping within 3 of the goal, groups of 4, clip .2, no KL. The early stop after twice the expert's
steps and the second roll of all-failed groups are rollout strategies that this config does not have yet.

Expected effect: more success than imitation alone.

agentrl-train --config=configs/keydoor_active_vln.py
"""

from agentrl_jax.algorithms.methods.gui import active_vln
from agentrl_jax.configs.small import Task, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment

STOPPING = Task("KeyDoor-v0", "weak", 256, 4, {"stop": True})


def get_config(variant: str = "method") -> Experiment:
    algorithm = pick(variant, "keydoor_active_vln", method=active_vln(**rates(STOPPING)))
    return small("keydoor-active-vln", STOPPING, algorithm, rollouts(tasks=32, group_size=4), steps=40, label="ActiveVLN")
