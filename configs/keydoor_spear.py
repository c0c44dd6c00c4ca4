"""SPEAR (arXiv 2509.22601) behind a door that is seldom opened: its own better past, replayed more and more, on a base without std.

Released: coefficient (1 - cos(pi t / T)) / 2 with T = 100 on ALFWorld, Clip-Cov on the replay, items at most 5 steps old, A' = R -
median of recent group means, clip .2 and .28, dual clip 10, the top three quarters of groups. Rooms have no tools to reward. Here
T is the number of steps, and the store is drawn from once it holds more than 24 episodes.

Expected effect: faster than the base without replay (`:base`) where success is rare.

agentrl-train --config=configs/keydoor_spear.py[:base]
"""

from agentrl_jax.algorithms.methods.tools import spear
from agentrl_jax.configs.small import RARE_ROOMS, pick, rates, rollouts, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings, steps = rates(RARE_ROOMS), 40
    algorithm = pick(
        variant, "keydoor_spear",
        method=spear(float(RARE_ROOMS.longest), steps=steps, tools=False, size=16, filter=None, **settings),
        base=spear(float(RARE_ROOMS.longest), tools=False, auxiliaries=(), filter=None, **settings),
    )  # fmt: skip
    return small("keydoor-spear", RARE_ROOMS, algorithm, rollouts(tasks=8, worlds=8), steps=steps, label="SPEAR")
