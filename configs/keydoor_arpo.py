"""ARPO for GUI agents (arXiv 2505.16282) behind a door that a random player seldom opens, in eight rooms that come again.

Released: 8 stored successes per task; where a group's rewards have std < .05 and mean < .2, one stands in for the first member;
clip .2 and .3, dual clip 3, no KL. There are no malformed actions here to take .5 for.

Expected effect: groups that all failed give a signal again; more success than without replay (`:base`, GRPO with the same clips).

agentrl-train --config=configs/keydoor_arpo.py[:base]
"""

from agentrl_jax.algorithms.methods.gui import arpo_gui
from agentrl_jax.configs.small import RARE_ROOMS, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(RARE_ROOMS, rescore=True)
    algorithm = pick(variant, "keydoor_arpo", method=arpo_gui(**settings), base=arpo_gui(replay=False, **settings))
    return small("keydoor-arpo", RARE_ROOMS, algorithm, rollouts(tasks=8, worlds=8), steps=40, label="ARPO")
