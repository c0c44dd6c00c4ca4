"""MARS (MARSHAL, arXiv 2510.15414) on Kuhn poker: one policy plays both seats, and credit is centred by player.

Released: turn rewards centred by player, returns to go, distinct values centred, whitened; KL .2, dual clip, .05 off for a
malformed turn, which the game itself charges here.

Expected effect: harder to exploit than a policy trained against a fixed opponent (`:base`: the game's random player). `:league` plays
against its earlier checkpoints.

agentrl-train --config=configs/kuhn_mars.py[:base|:league]
"""

from agentrl_jax.algorithms.methods.dialogue import mars
from agentrl_jax.algorithms.strategies.league import League
from agentrl_jax.algorithms.strategies.self_play import ScriptedOpponent, SelfPlay
from agentrl_jax.algorithms.terms import KL
from agentrl_jax.configs.small import KUHN, pick, rates, small
from agentrl_jax.experiment import Experiment, Rollouts


def get_config(variant: str = "method") -> Experiment:
    strategy = pick(
        variant, "kuhn_mars",
        method=SelfPlay(8),
        base=SelfPlay(16, opponents=ScriptedOpponent("random")),  # as many trajectories a step
        league=SelfPlay(16, opponents=League(every=5)),
    )  # fmt: skip
    algorithm = mars(**rates(KUHN, regularisers={"kl": KL(0.2)}, rewards=None))
    return small("kuhn-mars", KUHN, algorithm, Rollouts(tasks=32, strategy=strategy), steps=60, label="MARS")
