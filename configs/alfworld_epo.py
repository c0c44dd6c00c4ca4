"""EPO (arXiv 2509.22576) on household tasks of ALFWorld, where a reward comes at the end alone.

Released: entropy .001, band weight 1, KL .01, band .8 to 1.2 times the usual entropy, height .1, a
penalty of .1 for an illegal action, here .05. As in configs/chain_epo.py the band has a gradient
and the bonus is larger.

Expected effect: more success than with the same bonus without a band (`:base`).

Hardware: one CPU core

    pip install 'agentrl_jax[alfworld]'
    agentrl-train --config=configs/alfworld_epo.py[:base|pair|smoke]
"""

from agentrl_jax.algorithms.experience.schedules import EPOPhaseWeight
from agentrl_jax.algorithms.losses.entropy_band import EntropyBand
from agentrl_jax.algorithms.losses.regularizers import KL, EntropyBonus
from agentrl_jax.algorithms.methods.multi_turn import epo
from agentrl_jax.configs.small import pick, with_pair
from agentrl_jax.configs.text_worlds import (
    HOUSEHOLD_STEPS,
    ILLEGAL_PENALTY,
    TRAINING_SETTINGS,
    household_experiment,
)
from agentrl_jax.training.config import Experiment

BONUS = 0.05


@with_pair
def get_config(variant: str = "method") -> Experiment:
    band = EntropyBand(BONUS, smoothing=100.0, phase_weight=EPOPhaseWeight(HOUSEHOLD_STEPS))
    bonus = {"entropy": EntropyBonus(BONUS), "kl": KL(0.01)}
    method = epo(band, penalty=ILLEGAL_PENALTY, **TRAINING_SETTINGS)
    return household_experiment(
        f"alfworld-epo-{variant}",
        pick(
            variant,
            "alfworld_epo",
            method=method,
            base=epo(penalty=ILLEGAL_PENALTY, regularizers=bonus, **TRAINING_SETTINGS),
            smoke=method,
        ),
        smoke=variant == "smoke",
    )
