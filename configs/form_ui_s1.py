"""UI-S1 (arXiv 2509.11543) on forms: semi-online rollouts along an expert's recorded episode.

Values on screens are asked for later, when only the policy's own thoughts hold them: old
observations are a placeholder. Along the expert's path the history holds what the policy wrote.
Paper: r = .1 format + .4 type + .5 exact, returns that end at a mismatch, an episode's and a
step's advantage, groups of 8, KL 1e-4, one patch, without a thought. Returns are discounted by .9
here, not .5, since a value is typed up to six turns after it was shown; groups are kept from a
spread of .05 on, not .3. `:base` is offline step RL: every step of the expert's history, which has
no thoughts, separately, scored by the match alone. `:pair` trains both from one fine-tuning.

Expected effect: played live, more episodes succeed than after offline step RL.

Compared at 1e-4, the best of three learning rates for the base
(`--config.phases.rl.algorithm.optimizer.learning_rate=1e-4`).

Hardware: 2 CPU cores; time: `:pair` 3 minutes of one of them; score: docs/methods.md

    agentrl-train --config=configs/form_ui_s1.py[:base|pair]
"""

from agentrl_jax.algorithms.advantages.grouping import step_of_turn
from agentrl_jax.algorithms.advantages.turn import TurnGroupedBy, turn_reward
from agentrl_jax.algorithms.contexts.history_views import ObservationPlaceholders
from agentrl_jax.algorithms.methods.gui import ui_s1
from agentrl_jax.algorithms.strategies.semi_online import SemiOnlineRollouts
from agentrl_jax.configs.small import (
    SmallTask,
    pick,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.envs.diagnostic.form import THOUGHT_END_MARKER, action_type
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts

FORM = SmallTask("Form-v0", "mixture", 96, 8)


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(FORM, min_return_std=0.05)
    offline = ui_s1(advantage=TurnGroupedBy(turn_reward, step_of_turn, std=True), **settings)
    algorithm, strategy = pick(
        variant,
        "form_ui_s1",
        method=(ui_s1(gamma=0.9, **settings), _walks(max_patches=1)),
        base=(offline, _walks(max_patches=-1, use_policy_history=False)),
    )
    config = small_experiment(
        "form-ui-s1",
        FORM,
        algorithm,
        Rollouts(tasks=16, strategy=strategy),
        steps=40,
        label="UI-S1",
    )
    config.agent.context = ObservationPlaceholders("...\n")
    return config


def _walks(max_patches: int, use_policy_history: bool = True) -> SemiOnlineRollouts:
    return SemiOnlineRollouts(
        8,
        max_patches=max_patches,
        action_type=action_type,
        thought_end_marker=THOUGHT_END_MARKER,
        use_policy_history=use_policy_history,
    )
