"""A small run of ArCHer, or of REFUEL with `:refuel`, for any number of processes."""

import numpy as np
from support import letters_config

from agentrl_jax.algorithms.archer.advantage_weights import subtract_batch_mean
from agentrl_jax.algorithms.methods import archer, refuel
from agentrl_jax.algorithms.methods.hierarchical import reinforce_actor, utterance_critic
from agentrl_jax.algorithms.strategies.paired_rollouts import PairedRollouts
from agentrl_jax.learner.optimizer import AdamWConfig
from agentrl_jax.models.heads import HeadConfig
from agentrl_jax.models.utterance_critic import PolicyTrunkEncoderConfig, UtteranceCriticConfig
from agentrl_jax.rollout.strategy import IndependentEpisodes
from agentrl_jax.training.config import Experiment, Phase
from agentrl_jax.training.sources import Rollouts

BATCH_SIZE = 7


def full_batch_weight(advantage: np.ndarray) -> np.ndarray:
    """`subtract_batch_mean`, which needs the batch of all processes."""
    assert len(advantage) == BATCH_SIZE
    return subtract_batch_mean(advantage)


def get_config(variant: str) -> Experiment:
    experiment, adam = letters_config.get_config(), AdamWConfig(1e-3, eps=1e-4)
    small = {"optimizer": adam, "bin_length": 32, "microbatch": 4}
    if variant == "refuel":
        source, algorithm = Rollouts(5, PairedRollouts()), refuel(4.0, **small)
        experiment.phases["rl"] = Phase("REFUEL", source, algorithm, steps=5, checkpoint_every=2)
        return experiment
    critic = utterance_critic(
        UtteranceCriticConfig(head=HeadConfig(layers=1, hidden=16)),
        PolicyTrunkEncoderConfig(),
        state_lengths=(32,),
        utterance_lengths=(4,),
        batch=8,
        microbatch=4,
        optimizer=adam,
    )
    algorithm = archer(
        critic,
        reinforce_actor(**small),
        critic_steps=3,
        actor_steps=2,
        batch=BATCH_SIZE,
        warmup=1,
        capacity=40,
        weight_fn=full_batch_weight,
    )
    source = Rollouts(5, IndependentEpisodes(3))
    experiment.phases["rl"] = Phase("ArCHer", source, algorithm, steps=5, checkpoint_every=2)
    return experiment
