"""EPO (arXiv 2509.22576) on a chain of thirty-odd turns with one reward at its end.

Released: entropy .001, band weight 1, KL .01, band .8 to 1.2 times the usual entropy (scripts: 0 to 2), height .1, the phase of 150
epochs, .1 off for an illegal action. As released the band has no gradient (`:released`); here it has one, and both weigh more, since
a policy of this size sheds its entropy in tens of steps: bonus .005, and ten times as much back towards the band outside it (at .05
for the bonus entropy ran away on either side).

Expected effect: the entropy stays near what it was, where the same bonus without a band (`:base`) lets it run away or collapse.

agentrl-train --config=configs/chain_epo.py[:base|released]
"""

from agentrl_jax.algorithms.methods.dialogue import epo
from agentrl_jax.algorithms.schedules import PhaseWeight
from agentrl_jax.algorithms.terms import KL, Entropy, EntropyBand
from agentrl_jax.configs.small import CHAIN, pick, rates, small
from agentrl_jax.experiment import Experiment


def get_config(variant: str = "method") -> Experiment:
    settings = rates(CHAIN)
    phase, coefficient, smoothing = PhaseWeight(), 0.005, 100.0  # times the band's height of .1
    algorithm = pick(
        variant, "chain_epo",
        method=epo(EntropyBand(coefficient, smoothing=smoothing, phase=phase), **settings),
        released=epo(EntropyBand(coefficient, smoothing=smoothing, phase=phase, released=True), **settings),
        base=epo(**settings, regularisers={"entropy": Entropy(coefficient), "kl": KL(0.01)}),
    )  # fmt: skip
    return small("chain-epo", CHAIN, algorithm, steps=40, label="EPO")
