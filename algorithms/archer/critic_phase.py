"""`CriticPhase`: the critic's part of an iteration: what is replayed, and the steps on it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array

from agentrl_jax.algorithms.archer.actor_groups import sample_utterances
from agentrl_jax.algorithms.archer.config import ArcherSettings
from agentrl_jax.algorithms.archer.critic_invariants import replayed_turns
from agentrl_jax.algorithms.archer.replay_buffer import (
    ReplayBuffer,
    TokenizedText,
    Transition,
    decode_ids,
    transitions_of,
)
from agentrl_jax.algorithms.archer.twin_trainer import TwinCriticTrainer
from agentrl_jax.errors import UserError
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey

CriticMetrics = list[dict[str, Array]]  # of each step, on the device


class CriticPhase:
    """The replay buffer of this process, and the critic's steps."""

    def __init__(self, config: ArcherSettings, trainer: TwinCriticTrainer) -> None:
        self._config, self._trainer = config, trainer
        self.replay = ReplayBuffer(config.capacity)

    def store(self, groups: Sequence[Group], runtime: Runtime) -> list[list[Transition]]:
        """Replay the groups' turns; returns those of each trajectory."""
        agent, gamma = runtime.agents[self._config.agent], self._trainer.loss.gamma
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        episodes = [transitions_of(trajectory, agent, gamma) for trajectory in trajectories]
        transitions = [transition for episode in episodes for transition in episode]
        runtime.invariants.check(replayed_turns, trajectories, transitions, gamma)
        for episode in episodes:
            self.replay.add(episode)
        return episodes

    def pretrain(
        self,
        critic: TrainState,
        runtime: Runtime,
        agent: str,
        key: RandomKey,
        rng: np.random.Generator,
    ) -> tuple[TrainState, CriticMetrics]:
        """`pretrain_steps` steps on the demonstrations, all that is replayed so far.

        Raises:
            UserError: there are none.
        """
        if not min(runtime.process_group.all_gather("demonstrations", len(self.replay))):
            raise UserError(
                "pretrain_steps trains the critic on demonstrations, and the first iteration has "
                "none: let the phase's source be a MixedSource with them"
            )
        critic, metrics, _ = self._steps(
            critic, self._config.pretrain_steps, runtime, agent, key, rng
        )
        return critic, metrics

    def train(
        self,
        critic: TrainState,
        runtime: Runtime,
        agent: str,
        key: RandomKey,
        rng: np.random.Generator,
    ) -> tuple[TrainState, CriticMetrics, int]:
        """The critic steps of an iteration; the last result is how many turns this process read."""
        return self._steps(critic, self._config.critic_steps, runtime, agent, key, rng)

    def _steps(
        self,
        critic: TrainState,
        steps: int,
        runtime: Runtime,
        agent: str,
        key: RandomKey,
        rng: np.random.Generator,
    ) -> tuple[TrainState, CriticMetrics, int]:
        """Some critic steps; the utterances of V's targets are sampled in one batch before the
        first, by the agent of that name.
        """
        process_group, metrics = runtime.process_group, []
        count = len(process_group.local_items(range(self._trainer.batch)))
        draws = [
            self._trainer.draw(self.replay, count, rng, self._config.recent) for _ in range(steps)
        ]
        transitions = [transition for draw in draws for transition in draw]
        value_utterances = [t.utterance for t in transitions]
        if self._trainer.loss.needs_policy_utterances:
            value_utterances = self._sample(transitions, runtime, agent, key)
        start = 0
        for draw in draws:
            part = slice(start, start + len(draw))
            critic, step_metrics = self._trainer.update(
                critic, draw, value_utterances[part], process_group
            )
            metrics.append(step_metrics)
            start = part.stop
        return critic, metrics, len(transitions)

    def _sample(
        self, transitions: Sequence[Transition], runtime: Runtime, agent: str, key: RandomKey
    ) -> list[TokenizedText]:
        player = runtime.agents[self._config.agent]
        calls = sample_utterances(transitions, runtime, agent, 1, key)
        return [decode_ids(call.action, player) for (call,) in calls]
