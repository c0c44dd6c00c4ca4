"""ActiveVLN (arXiv 2509.12618) in rooms: GRPO on the distance at which the agent stops by itself.

Released: 15 (1 - d / 3) for stopping within 3 of the goal, groups of 4, clip .2, no KL; an episode
is stopped, with reward 0, after twice as many actions as the expert needs (at most 120); a group in
which no episode succeeds is rolled out a second time.

Expected effect: more success than imitation alone; in fewer turns than without the two (`:base`).

Hardware: 2 CPU cores; time: about 4.5 minutes; score: success .61, SFT .00 (seed 0)

    agentrl-train --config=configs/keydoor_active_vln.py[:base]
"""

from agentrl_jax.algorithms.methods.gui import active_vln
from agentrl_jax.algorithms.strategies.early_stop import EarlyStopping, StepBudget
from agentrl_jax.algorithms.strategies.resample import ResampleGroup
from agentrl_jax.configs.small import SmallTask, pick, small_experiment, training_settings
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts

KEY_DOOR_WITH_STOP = SmallTask("KeyDoor-v0", "weak", 288, 6, {"stop": True})


def get_config(variant: str = "method") -> Experiment:
    group = IndependentEpisodes(group_size=4)
    strategy = pick(
        variant,
        "keydoor_active_vln",
        method=EarlyStopping(ResampleGroup(group, max_attempts=2), (StepBudget(2.0, 120),)),
        base=group,
    )
    source = Rollouts(tasks=32, strategy=strategy)
    return small_experiment(
        "keydoor-active-vln",
        KEY_DOOR_WITH_STOP,
        active_vln(**training_settings(KEY_DOOR_WITH_STOP)),
        source,
        steps=40,
        label="ActiveVLN",
    )
