"""SPEAR (arXiv 2509.22601) on household tasks of ALFWorld: scheduled self-imitation.

Released for ALFWorld: coefficient (1 - cos(pi t / T)) / 2 with T = 100, here the number of steps;
the base is GRPO without std (Dr.BoT), or GiGPO (`:gigpo`). No tool is called, so all trajectories
that are better than their group's mean are replayed, and no call is rewarded; an impossible command
costs .05.

Expected effect: more success late in the run than the base without replay (`:base`).

Hardware: one CPU core

    pip install 'agentrl_jax[alfworld]'
    agentrl-train --config=configs/alfworld_spear.py[:base|pair|gigpo|smoke]
"""

from agentrl_jax.algorithms.methods.group_relative import gigpo
from agentrl_jax.algorithms.methods.tool_use import spear
from agentrl_jax.configs.small import pick, with_pair
from agentrl_jax.configs.text_worlds import (
    HOUSEHOLD,
    HOUSEHOLD_SETTINGS,
    HOUSEHOLD_STEPS,
    household_experiment,
)
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    tokens = float(HOUSEHOLD.max_length)
    fields = {
        "anneal_steps": HOUSEHOLD_STEPS,
        "replay_size": 16,
        "reward_tool_use": False,
        **HOUSEHOLD_SETTINGS,
    }
    method = spear(tokens, **fields)
    return household_experiment(
        f"alfworld-spear-{variant}",
        pick(
            variant,
            "alfworld_spear",
            method=method,
            gigpo=spear(tokens, advantage=gigpo().advantage, **fields),
            base=spear(tokens, **{**fields, "auxiliaries": ()}),
            smoke=method,
        ),
        smoke=variant == "smoke",
    )
