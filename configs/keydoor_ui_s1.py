"""UI-S1 (arXiv 2509.11543) in rooms: walks along an expert's recorded way, with the policy's own actions in the history.

Paper: r = .1 format + .4 type + .5 exact, returns (gamma .5) that end at a mismatch, an episode's and a step's advantage, groups of 8
with a spread above .3, KL 1e-4, one patch, without thoughts. An action's type is moving, taking or opening. `:base` is offline step
RL: every step of the expert's history for itself, scored by the match alone.

Expected effect: played live, more episodes succeed than after offline step RL.

agentrl-train --config=configs/keydoor_ui_s1.py[:base]
"""

from agentrl_jax.algorithms.keying import step_of_turn
from agentrl_jax.algorithms.methods.gui import ui_s1
from agentrl_jax.algorithms.strategies.semi_online import SemiOnline
from agentrl_jax.algorithms.turn_credit import TurnKeyed, turn_reward
from agentrl_jax.configs.small import KEY_DOOR, pick, rates, small
from agentrl_jax.envs.probes.rooms import MOVES, WORDS
from agentrl_jax.experiment import Experiment, Rollouts


def kind(action: str) -> str | None:
    """Moves are of one kind; what is no action is of none."""
    return None if action not in WORDS else "move" if action in MOVES else action


def get_config(variant: str = "method") -> Experiment:
    settings = rates(KEY_DOOR)
    offline = ui_s1(advantage=TurnKeyed(turn_reward, step_of_turn, std=True), **settings)
    algorithm, strategy = pick(
        variant, "keydoor_ui_s1", method=(ui_s1(**settings), SemiOnline(8, patches=1, kind=kind)),
        base=(offline, SemiOnline(8, patches=-1, kind=kind, own=False)),
    )  # fmt: skip
    return small("keydoor-ui-s1", KEY_DOOR, algorithm, Rollouts(tasks=16, strategy=strategy), steps=40, label="UI-S1")
