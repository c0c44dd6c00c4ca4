"""UI-S1 (arXiv 2509.11543) in rooms: semi-online rollouts along an expert's recorded episode.

The policy's own actions are in the history. Paper: r = .1 format + .4 type + .5 exact, returns
(gamma .5) that end at a mismatch, an episode's and a step's advantage, groups of 8 with a spread
above .3, KL 1e-4, one patch, without thoughts. An action's type is moving, taking or opening.
`:base` is offline step RL: every step of the expert's history separately, scored by the match
alone.

Expected effect: played live, more episodes succeed than after offline step RL.

Measured at learning rate 3e-4 (`--config.phases.rl.algorithm.optimizer.learning_rate=3e-4`).

Hardware: 2 CPU cores; time: about 180 s; score: success .88 over 3 seeds (docs/methods.md)

    agentrl-train --config=configs/keydoor_ui_s1.py[:base]
"""

from agentrl_jax.algorithms.advantages.grouping import step_of_turn
from agentrl_jax.algorithms.advantages.turn import TurnGroupedBy, turn_reward
from agentrl_jax.algorithms.methods.gui import ui_s1
from agentrl_jax.algorithms.strategies.semi_online import SemiOnlineRollouts
from agentrl_jax.configs.small import KEY_DOOR, pick, small_experiment, training_settings
from agentrl_jax.envs.diagnostic.rooms import ACTIONS, MOVES
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


def action_type(action: str) -> str | None:
    """Moves are of one kind; what is no action is of none."""
    return None if action not in ACTIONS else "move" if action in MOVES else action


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(KEY_DOOR)
    offline = ui_s1(advantage=TurnGroupedBy(turn_reward, step_of_turn, std=True), **settings)
    algorithm, strategy = pick(
        variant,
        "keydoor_ui_s1",
        method=(ui_s1(**settings), SemiOnlineRollouts(8, max_patches=1, action_type=action_type)),
        base=(
            offline,
            SemiOnlineRollouts(
                8, max_patches=-1, action_type=action_type, use_policy_history=False
            ),
        ),
    )
    return small_experiment(
        "keydoor-ui-s1",
        KEY_DOOR,
        algorithm,
        Rollouts(tasks=16, strategy=strategy),
        steps=40,
        label="UI-S1",
    )
