"""GiGPO (arXiv 2505.10978) on household tasks of ALFWorld: steps taken in the same state are
compared with each other.

Released: groups of 8, gamma .95, weight 1, means only; a state is what was observed last; a command
that is not possible costs .1 where success is worth 10, here .05 where it is worth 1.

Expected effect: faster than with the episode's advantage alone (`:base`).

Hardware: one CPU core

    pip install 'agentrl_jax[alfworld]'
    agentrl-train --config=configs/alfworld_gigpo.py[:base|pair|smoke]
"""

from agentrl_jax.algorithms.methods.group_relative import gigpo
from agentrl_jax.configs.small import pick, with_pair
from agentrl_jax.configs.text_worlds import HOUSEHOLD_SETTINGS, household_experiment
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    method, base = gigpo(**HOUSEHOLD_SETTINGS), gigpo(weight=0.0, **HOUSEHOLD_SETTINGS)
    return household_experiment(
        f"alfworld-gigpo-{variant}",
        pick(variant, "alfworld_gigpo", method=method, base=base, smoke=method),
        smoke=variant == "smoke",
    )
