"""ActiveVLN (arXiv 2509.12618) in rooms: GRPO on the distance at which the agent stops by itself.

Released: 15 (1 - d / 3) for stopping within 3 of the goal, groups of 4, clip .2, no KL; an episode
is stopped, with reward 0, after twice as many actions as the expert needs (at most 120); a group in
which no episode succeeds is rolled out a second time.

Expected effect: more success than imitation alone, and in fewer turns as much as without the early
stop (`:base`; `:plain` is without either). Few episodes here wander for long (docs/methods.md).

Hardware: 2 CPU cores; time: about 80 s of one core; score: success .88, SFT .50 (seed 100 with
`--config.demonstrations.episodes=1000`)

    agentrl-train --config=configs/keydoor_active_vln.py[:base|plain]
"""

from agentrl_jax.algorithms.methods.gui import active_vln
from agentrl_jax.algorithms.strategies.early_stop import EarlyStopping, StepBudget
from agentrl_jax.algorithms.strategies.resample import ResampleGroup
from agentrl_jax.configs.small import SmallTask, pick, small_experiment, training_settings
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts

# The expert needs 6 to 10 turns; the horizon is about twice the budget of an early stop.
ROOMS_WITH_STOP = SmallTask(
    "KeyDoor-v0",
    "mixture",
    288,
    6,
    {"width": 4, "height": 2, "walls": 0, "stop": True, "horizon": 30},
    sft_steps=100,
)


def get_config(variant: str = "method") -> Experiment:
    group = IndependentEpisodes(group_size=4)
    twice = ResampleGroup(group, max_attempts=2)
    strategy = pick(
        variant,
        "keydoor_active_vln",
        method=EarlyStopping(twice, (StepBudget(2.0, 120),)),
        base=twice,
        plain=group,
    )
    source = Rollouts(tasks=12, strategy=strategy)
    return small_experiment(
        "keydoor-active-vln",
        ROOMS_WITH_STOP,
        active_vln(**training_settings(ROOMS_WITH_STOP)),
        source,
        steps=25,
        label="ActiveVLN",
    )
