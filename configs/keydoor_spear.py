"""SPEAR (arXiv 2509.22601) behind a door that is seldom opened: scheduled self-imitation.

The policy's own better past trajectories are replayed with a growing weight, on a base without std.
Released: coefficient (1 - cos(pi t / T)) / 2 with T = 100 on ALFWorld, Clip-Cov on the replay,
items at most 5 steps old, A' = R - median of recent group means, clip .2 and .28, dual clip 10, the
top three quarters of groups without void and overlong episodes, .1 for each turn that calls a tool,
at most 1, times (1 + cos(pi t / 200)) / 2; only episodes with a tool call are replayed. Taking the
key and opening the door are the tools here. T is the number of steps. Training repeats four rooms,
32 episodes a step, and the replay buffer is sampled from once it holds more than 6.

Expected effect: more success than the base without replay (`:base`), late in the run: the
coefficient grows from 0 to 1.

Hardware: 2 CPU cores; time: about 80 s of processor time for both sides; score: see docs/methods.md

    agentrl-train --config=configs/keydoor_spear.py[:base|pair]
"""

from agentrl_jax.algorithms.methods.tool_use import spear
from agentrl_jax.configs.small import (
    RARE_ROOMS,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.task_set import TaskSet


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings, steps = training_settings(RARE_ROOMS), 24
    algorithm = pick(
        variant,
        "keydoor_spear",
        method=spear(
            float(RARE_ROOMS.max_length),
            anneal_steps=steps,
            replay_size=4,
            **settings,
        ),
        base=spear(float(RARE_ROOMS.max_length), auxiliaries=(), **settings),
    )
    return small_experiment(
        "keydoor-spear",
        RARE_ROOMS,
        algorithm,
        rollouts(tasks=4, task_source=TaskSet(4)),
        steps=steps,
        label="SPEAR",
    )
