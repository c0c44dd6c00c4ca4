"""ScalingInter-RL (AgentGym-RL, arXiv 2509.08755) behind a door: horizons of 8, 13, then 20 turns.

Released schedules: 6, 13, 20 turns every 100 steps for BabyAI, whose rooms are like these; 8, 12,
15 every 80 for WebArena; GRPO, KL .001, clip .2, two epochs. Here the limits are raised every 12
steps. Some layouts are solved within the first limit, most are not.

Expected effect: better than the longest horizon from the start (`:base`) after as many steps, and
more so after as many turns played.

Hardware: 2 CPU cores; time: about 447 s; score: success .86 over 3 seeds (docs/methods.md)

    agentrl-train --config=configs/keydoor_scaling_inter.py[:base]
"""

from agentrl_jax.algorithms.experience.schedules import IntervalSchedule
from agentrl_jax.algorithms.methods.multi_turn import scaling_inter
from agentrl_jax.configs.small import KEY_DOOR, pick, rollouts, small_experiment, training_settings
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    source = pick(
        variant,
        "keydoor_scaling_inter",
        method=rollouts(max_turns=IntervalSchedule((8, 13, 20), 12)),
        base=rollouts(),
    )
    return small_experiment(
        "keydoor-scaling-inter",
        KEY_DOOR,
        scaling_inter(**training_settings(KEY_DOOR)),
        source,
        steps=36,
        label="ScalingInter",
    )
