"""ScalingInter-RL (AgentGym-RL, arXiv 2509.08755) on a chain: episodes may be 10 turns long, then 14, then 20.

Released schedules: 8, 12, 15 turns every 80 steps for WebArena, 10, 20, 30 every 100 for others; GRPO, KL .001, clip .2, two
epochs. Here the caps are those of a chain of 8, raised every 12 steps.

Expected effect: better than the longest horizon from the start (`:base`) after as many steps, and more so after as many turns
played.

agentrl-train --config=configs/chain_scaling_inter.py[:base]
"""

from agentrl_jax.algorithms.methods.dialogue import scaling_inter
from agentrl_jax.algorithms.schedules import Stepped
from agentrl_jax.configs.small import CHAIN, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    source = pick(variant, "chain_scaling_inter", method=rollouts(turns=Stepped((10, 14, 20), 12)), base=rollouts())
    return small("chain-scaling-inter", CHAIN, scaling_inter(**rates(CHAIN)), source, steps=36, label="ScalingInter")
