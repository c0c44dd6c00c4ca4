"""A small run of ArCHer, or of REFUEL's pairs, for any number of processes."""

import letters_run
import numpy as np

from agentrl_jax.algorithms.archer import centred
from agentrl_jax.algorithms.methods import archer
from agentrl_jax.algorithms.methods.refuel import refuel
from agentrl_jax.algorithms.strategies.pairs import Pairs
from agentrl_jax.experiment import Experiment, Phase, Rollouts
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.utterance_critic import PolicyTrunk, UtteranceCriticConfig
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.strategies import Independent

BATCH = 7


def of_all(advantage: np.ndarray) -> np.ndarray:
    """The batch's, of whichever process."""
    assert len(advantage) == BATCH
    return centred(advantage)


def get_config(variant: str) -> Experiment:
    config, adam = letters_run.get_config(), AdamWConfig(1e-3, eps=1e-4)
    low = {"optimizer": adam, "bin_length": 32, "microbatch": 4}
    if variant == "refuel":
        config.rl = Phase("REFUEL", Rollouts(5, Pairs()), refuel(4.0, **low), steps=5, checkpoint_every=2)
    else:
        critic = UtteranceCriticConfig(head=HeadConfig(layers=1, hidden=16))
        values = archer.values(critic, PolicyTrunk(), states=(32,), utterances=(4,), batch=8, microbatch=4, optimizer=adam)
        algorithm = archer.archer(
            values, archer.actor(**low), critic_steps=3, actor_steps=2, batch=BATCH, warmup=1, capacity=40, weight=of_all
        )
        config.rl = Phase("ArCHer", Rollouts(5, Independent(3)), algorithm, steps=5, checkpoint_every=2)
    return config
