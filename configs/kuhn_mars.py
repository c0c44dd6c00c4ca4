"""MARS (MARSHAL, arXiv 2510.15414) on Kuhn poker: self-play, with credit centered by player.

One policy is both players. Released: turn rewards centered by player, returns to go, distinct
values centered, whitened; KL .2, dual clip, a penalty of .05 for a malformed turn, which the game
itself charges here.

Expected effect: harder to exploit than a policy trained against a fixed opponent (`:base`: the
game's random policy). `:league` plays against its earlier checkpoints. Exploitability is in antes a
game, lower is better.

Hardware: 2 CPU cores; time: about 55 s of processor time for both sides; score:
exploitability .14 antes, against .29 of the base, over 10 seeds (docs/methods.md)

    agentrl-train --config=configs/kuhn_mars.py[:base|pair|league]
"""

from agentrl_jax.algorithms.losses.regularizers import KL
from agentrl_jax.algorithms.methods.multi_turn import mars
from agentrl_jax.algorithms.strategies.league import League
from agentrl_jax.algorithms.strategies.self_play import ScriptedOpponent, SelfPlay
from agentrl_jax.configs.small import KUHN, pick, small_experiment, training_settings, with_pair
from agentrl_jax.training.config import Experiment
from agentrl_jax.training.sources import Rollouts


@with_pair
def get_config(variant: str = "method") -> Experiment:
    strategy = pick(
        variant, "kuhn_mars",
        method=SelfPlay(8),
        base=SelfPlay(16, opponents=ScriptedOpponent("random")),  # as many trajectories a step
        league=SelfPlay(16, opponents=League(every=5)),
    )  # fmt: skip
    algorithm = mars(**training_settings(KUHN, regularizers={"kl": KL(0.2)}, rewards=None))
    return small_experiment(
        "kuhn-mars", KUHN, algorithm, Rollouts(tasks=32, strategy=strategy), steps=60, label="MARS"
    )
