"""The settings of ArCHer."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from agentrl_jax.algorithms.archer.advantage_weights import identity
from agentrl_jax.algorithms.archer.replay_buffer import RecentShare
from agentrl_jax.algorithms.archer.twin_trainer import TwinCriticTrainerConfig
from agentrl_jax.algorithms.archer.utterance_advantages import (
    AnchoredAdvantage,
    QMinusV,
    UtteranceAdvantage,
)
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.config_tree import OMITTED_AT_DEFAULT
from agentrl_jax.errors import UserError


@dataclass
class ArcherSettings:
    """Each iteration stores the new turns, takes `critic_steps` steps of the critic, and after
    `warmup` iterations `actor_steps` steps of the policy.

    An actor step is one of `actor` on `batch` utterances, each a turn whose `info["weight"]` is
    `weight_fn` of its advantage: those that the policy samples now in replayed states, or with
    `train_on_replay` the replayed ones. With `anchored` the actor takes one step, of its `epochs`
    and `minibatches`, on the iteration's own turns. `imitation_batch` replayed utterances are added
    as demonstrations, for an `Imitation` among the actor's auxiliaries.
    """

    critic: TwinCriticTrainerConfig
    # its advantage is `static_weights`, or `advantage_minus_baseline` with a token critic
    actor: PolicyGradientConfig
    weight_fn: Callable[[np.ndarray], np.ndarray] = identity
    # of sampled utterances: `QMinusV`, `SameStateGroups`
    advantage: UtteranceAdvantage = field(default_factory=QMinusV, metadata=OMITTED_AT_DEFAULT)
    # of the iteration's own turns, on which the actor then trains
    anchored: AnchoredAdvantage | None = field(default=None, metadata=OMITTED_AT_DEFAULT)
    train_on_replay: bool = False
    imitation_batch: int = 0  # utterances an actor step, of all processes
    capacity: int = 100_000  # transitions in the replay buffer of each process
    # recent and older turns are drawn apart; None: all alike
    recent: RecentShare | None = field(default=None, metadata=OMITTED_AT_DEFAULT)
    # steps of the critic on the first iteration's demonstrations (`MixedSource`), before anything
    # that the policy played is replayed
    pretrain_steps: int = field(default=0, metadata=OMITTED_AT_DEFAULT)
    critic_steps: int = 50
    actor_steps: int = 3  # 0: the policy is not trained
    # an iteration's remaining actor steps are left out once KL(policy at its start || policy), the
    # mean over the tokens that it played, exceeds it; within a step: `PolicyGradientConfig.max_kl`
    max_kl: float = field(default=float("inf"), metadata=OMITTED_AT_DEFAULT)
    batch: int = 256  # utterances an actor step, of all processes
    warmup: int = 10  # first iterations, in which only the critic learns
    # CHAI: samples per action of the policy, of which the one of the largest min_k Qbar_k is taken
    best_of_n: int = 1
    agent: str = "policy"  # the agent that is trained


def check_archer_config(config: ArcherSettings) -> None:
    """Raises UserError where settings make no sense or contradict each other."""
    c = config
    if (
        min(c.critic_steps, c.batch, c.best_of_n) < 1
        or min(c.actor_steps, c.warmup, c.imitation_batch, c.pretrain_steps) < 0
        or c.batch < c.advantage.utterances_per_state
        or not c.max_kl > 0
    ):
        raise UserError(
            "ArCHer needs critic_steps, best_of_n and max_kl of at least 1 or above 0, a batch of "
            "at least the utterances of one state, and actor_steps, warmup, imitation_batch and "
            "pretrain_steps >= 0"
        )
    if c.imitation_batch and not c.actor.auxiliaries:
        raise UserError(
            "imitation_batch is learned by an auxiliary loss: give the actor an Imitation"
        )
    if c.anchored and (c.actor_steps != 1 or c.train_on_replay or c.best_of_n > 1):
        raise UserError(
            "an anchored ArCHer trains once on the turns that the policy itself played: set "
            "actor_steps to 1 (the actor has epochs and minibatches), train_on_replay off and "
            "best_of_n to 1"
        )
