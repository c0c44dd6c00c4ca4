"""EPO (arXiv 2509.22576) on a chain of thirty-odd turns with one reward at its end.

Released: entropy .001, band weight 1, KL .01, band .8 to 1.2 times the usual entropy (scripts: 0 to
2), height .1, the phase of 150 epochs, a penalty of .1 for an illegal action. As released the band
has no gradient (`:released`); here it has one, and both weights are larger, since a policy of this
size loses its entropy in tens of steps: bonus .005, and ten times as much towards the band outside
it (with a bonus of .05 entropy diverged on either side).

Expected effect: the entropy stays near its earlier level, where the same bonus without a band
(`:base`) lets it diverge or collapse.

Hardware: 2 CPU cores; time: about 91 s; score: success 1.00 over 3 seeds (docs/methods.md)

    agentrl-train --config=configs/chain_epo.py[:base|released]
"""

from agentrl_jax.algorithms.experience.schedules import EPOPhaseWeight
from agentrl_jax.algorithms.losses.entropy_band import EntropyBand
from agentrl_jax.algorithms.losses.regularizers import KL, EntropyBonus
from agentrl_jax.algorithms.methods.multi_turn import epo
from agentrl_jax.configs.small import CHAIN, pick, small_experiment, training_settings
from agentrl_jax.training.config import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = training_settings(CHAIN)
    phase, coefficient, smoothing = EPOPhaseWeight(), 0.005, 100.0  # times the band's height of .1
    algorithm = pick(
        variant,
        "chain_epo",
        method=epo(EntropyBand(coefficient, smoothing=smoothing, phase_weight=phase), **settings),
        released=epo(
            EntropyBand(
                coefficient, smoothing=smoothing, phase_weight=phase, constant_penalty=True
            ),
            **settings,
        ),
        base=epo(**settings, regularizers={"entropy": EntropyBonus(coefficient), "kl": KL(0.01)}),
    )
    return small_experiment("chain-epo", CHAIN, algorithm, steps=40, label="EPO")
