"""ARPO for GUI agents (arXiv 2505.16282) behind a door that a random policy seldom opens.

Training repeats four rooms, 32 episodes a step. Released: 8 stored successes per task; where a
group's rewards have std < .05 and mean < .2, one replaces the first member; clip .2 and .3, dual
clip 3, no KL. There are no malformed actions here to subtract .5 for.

Expected effect: groups that all failed give a signal again; more success than without replay
(`:base`, GRPO with the same clips).

Hardware: 2 CPU cores; time: about 70 s of processor time for both sides; score: see docs/methods.md

    agentrl-train --config=configs/keydoor_arpo.py[:base|pair]
"""

from agentrl_jax.algorithms.methods.gui import arpo_gui
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
    settings = training_settings(RARE_ROOMS, rescore=True)
    algorithm = pick(
        variant,
        "keydoor_arpo",
        method=arpo_gui(**settings),
        base=arpo_gui(replay=False, **settings),
    )
    return small_experiment(
        "keydoor-arpo",
        RARE_ROOMS,
        algorithm,
        rollouts(tasks=4, task_source=TaskSet(4)),
        steps=24,
        label="ARPO",
    )
