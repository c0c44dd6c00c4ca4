"""ScalingInter-RL (AgentGym-RL, arXiv 2509.08755) behind a door: episodes may be 8 turns long, then 13, then 20.

Released schedules: 6, 13, 20 turns every 100 steps for BabyAI, whose rooms are like these; 8, 12, 15 every 80 for WebArena; GRPO, KL
.001, clip .2, two epochs. Here the caps are raised every 12 steps. Some layouts are solved within the first cap, most are not.

Expected effect: better than the longest horizon from the start (`:base`) after as many steps, and more so after as many turns
played.

agentrl-train --config=configs/keydoor_scaling_inter.py[:base]
"""

from agentrl_jax.algorithms.methods.dialogue import scaling_inter
from agentrl_jax.algorithms.schedules import Stepped
from agentrl_jax.configs.small import KEY_DOOR, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    source = pick(variant, "keydoor_scaling_inter", method=rollouts(turns=Stepped((8, 13, 20), 12)), base=rollouts())
    return small("keydoor-scaling-inter", KEY_DOOR, scaling_inter(**rates(KEY_DOOR)), source, steps=36, label="ScalingInter")
