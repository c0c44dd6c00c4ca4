"""EPO (arXiv 2509.22576) on a chain of 8 turns with one reward at its end.

Released: entropy .001, band weight 1, KL .01, band .8 to 1.2 times the usual entropy (scripts: 0 to
2), height .1, a phase over all 150 epochs, the band in the second half of the longest episode, a
penalty of .1 for an illegal action. As released the band has no gradient (`:released`); here it has
one, and both weights are larger, since a policy of this size loses its entropy in tens of steps:
bonus .2, and ten times as much towards the band outside it, in all turns (released: the second
half), since a mistake in any turn decides. A step has 32 episodes, and a policy cloned from one
that errs in a fifth of the turns seldom succeeds.

The phase is over all steps of this run: the band's weight falls from 1 to .83 in the first half of
the steps and from .8 to .04 in the second.

Expected effect: the entropy stays near its earlier level and success rises, where the same bonus
without a band (`:base`) lets entropy diverge.

Hardware: 2 CPU cores; time: about 40 s of processor time a side; score: success .60, SFT .23 over
10 seeds (docs/methods.md)

    agentrl-train --config=configs/chain_epo.py[:base|pair|released]
"""

from dataclasses import replace

from agentrl_jax.algorithms.experience.schedules import EPOPhaseWeight
from agentrl_jax.algorithms.losses.entropy_band import EntropyBand
from agentrl_jax.algorithms.losses.regularizers import KL, EntropyBonus
from agentrl_jax.algorithms.methods.multi_turn import epo
from agentrl_jax.configs.small import (
    STRICT_CHAIN,
    pick,
    rollouts,
    small_experiment,
    training_settings,
    with_pair,
)
from agentrl_jax.training.config import Experiment


@with_pair
def get_config(variant: str = "method") -> Experiment:
    settings, steps, coefficient = training_settings(STRICT_CHAIN), 16, 0.2
    band = EntropyBand(
        coefficient,
        smoothing=100.0,  # times the band's height of .1
        phase_weight=EPOPhaseWeight(steps),
    )
    algorithm = pick(
        variant,
        "chain_epo",
        method=epo(band, **settings),
        released=epo(replace(band, constant_penalty=True), **settings),
        base=epo(**settings, regularizers={"entropy": EntropyBonus(coefficient), "kl": KL(0.01)}),
    )
    return small_experiment(
        "chain-epo", STRICT_CHAIN, algorithm, rollouts(4), steps=steps, label="EPO"
    )
