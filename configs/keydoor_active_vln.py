"""ActiveVLN (arXiv 2509.12618) in rooms: GRPO on the distance at which the agent stops by itself.

Released: 15 (1 - d / 3) for stopping within 3 of the goal, groups of 4, clip .2, no KL; an episode is stopped, and earns 0, after
twice as many actions as the expert needs (at most 120); a group in which nobody succeeds is rolled a second time.

Expected effect: more success than imitation alone; for fewer turns than without the two (`:base`).

agentrl-train --config=configs/keydoor_active_vln.py[:base]
"""

from agentrl_jax.algorithms.methods.gui import active_vln
from agentrl_jax.algorithms.strategies.early import Early, StepBudget
from agentrl_jax.algorithms.strategies.reroll import Reroll
from agentrl_jax.configs.small import Task, pick, rates, small
from agentrl_jax.experiment import Experiment, Rollouts
from agentrl_jax.strategies import Independent

STOPPING = Task("KeyDoor-v0", "weak", 288, 6, {"stop": True})


def get_config(variant: str = "method") -> Experiment:
    group = Independent(group_size=4)
    strategy = pick(variant, "keydoor_active_vln", method=Early(Reroll(group, attempts=2), (StepBudget(2.0, 120),)), base=group)
    source = Rollouts(tasks=32, strategy=strategy)
    return small("keydoor-active-vln", STOPPING, active_vln(**rates(STOPPING)), source, steps=40, label="ActiveVLN")
