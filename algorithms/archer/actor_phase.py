"""`ActorPhase`: the policy's part of an iteration: steps on replayed states or its own turns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentrl_jax.algorithms.archer.actor_groups import (
    replayed_call,
    sample_utterances,
    single_turn_group,
    with_baseline_metrics,
)
from agentrl_jax.algorithms.archer.config import ArcherSettings
from agentrl_jax.algorithms.archer.own_turns import OwnTurns, baseline, state_share
from agentrl_jax.algorithms.archer.replay_buffer import ReplayBuffer, decode_ids
from agentrl_jax.algorithms.archer.twin_trainer import TwinCriticTrainer
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradient
from agentrl_jax.algorithms.policy_gradient.trust_region import sampler_kl
from agentrl_jax.learner.sequences import TokenIndex, TrainingSequence
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.trajectories import Group, RandomKey


class ActorPhase:
    """The policy's steps on the advantages of utterances."""

    def __init__(
        self, config: ArcherSettings, actor: PolicyGradient, trainer: TwinCriticTrainer
    ) -> None:
        self._config, self._actor, self._trainer = config, actor, trainer

    def train_on_replay(
        self,
        actor: TrainState,
        critic: TrainState,
        replay: ReplayBuffer,
        own_groups: Sequence[Group],
        runtime: Runtime,
        agent: str,
        key: RandomKey,
        rng: np.random.Generator,
    ) -> tuple[TrainState, dict[str, Any]]:
        """`actor_steps` steps on replayed states, as many as keep to the trust region.

        Args:
            own_groups: this process's groups of the iteration, on which the divergence is measured.
            agent: the name of the agent that samples.
            key: of the utterances, without the step.
        """
        c, engine = self._config, runtime.agents[self._config.agent].engine
        metrics, bounded = dict[str, Any](device=[]), bool(np.isfinite(c.max_kl))
        for i in range(c.actor_steps):
            groups, metrics["advantage/state_share"] = self._replayed_groups(
                critic, replay, runtime, agent, (*key, i), rng
            )
            actor, step_metrics = self._actor.step(actor, groups, runtime)
            # the next utterances are sampled from the updated policy; the version stays, so that
            # followers of published weights see the iteration's last ones only
            if not c.train_on_replay:
                version = runtime.published_versions.get(engine, 0)
                runtime.engines[engine].publish(actor.params, version)
            metrics["device"] += with_baseline_metrics(step_metrics)
            metrics |= {k: x for k, x in step_metrics.items() if k.startswith("advantage/")}
            metrics["actor_steps"] = float(i + 1)
            if bounded and self.kl_from_start(actor, own_groups, runtime) > c.max_kl:
                break
        if c.advantage.utterances_per_state == 1:
            del metrics["advantage/state_share"]
        return actor, metrics

    def train_on_own_turns(
        self,
        actor: TrainState,
        critic: TrainState,
        own_turns: OwnTurns,
        correlation: float,
        iteration: int,
        runtime: Runtime,
    ) -> tuple[TrainState, dict[str, Any]]:
        """One step of the actor's epochs and minibatches on the turns that the iteration played.

        Args:
            correlation: of the critic with their returns, before it was trained on them.
        """
        anchored = self._config.anchored
        assert anchored is not None
        values = self._trainer.values(critic, *own_turns.texts_to_value(), runtime.process_group)
        gamma = self._trainer.loss.gamma if anchored.gamma is None else anchored.gamma
        beta = anchored.beta_at(iteration, correlation)
        q = values.q[:, 0] if len(values.q) else values.v
        advantage = anchored(q, baseline(values), own_turns.returns(gamma), beta)
        actor, metrics = self._actor.step(actor, own_turns.with_weights(advantage), runtime)
        return actor, {**metrics, "device": with_baseline_metrics(metrics), "advantage/beta": beta}

    def kl_from_start(self, actor: TrainState, groups: Sequence[Group], runtime: Runtime) -> float:
        """KL(policy at the iteration's start || policy) on the turns that it played, per token."""
        process_group = runtime.process_group

        def token_logp(sequences: list[TrainingSequence], indices: TokenIndex) -> np.ndarray:
            return self._actor.token_logp(actor, process_group, sequences, indices)

        return sampler_kl(token_logp, groups, process_group)

    def _replayed_groups(
        self,
        critic: TrainState,
        replay: ReplayBuffer,
        runtime: Runtime,
        agent: str,
        key: RandomKey,
        rng: np.random.Generator,
    ) -> tuple[list[Group], float]:
        """Utterances in replayed states with their weights in the loss, and the share of the
        variance of Q - V that is between states.
        """
        c, process_group = self._config, runtime.process_group
        player, per_state = runtime.agents[c.agent], c.advantage.utterances_per_state
        count = len(process_group.local_items(range(c.batch // per_state)))
        transitions = replay.draw(count, rng, c.recent)
        if c.train_on_replay:
            calls = [[replayed_call(t, "sampled")] for t in transitions]
        else:
            calls = sample_utterances(transitions, runtime, agent, per_state, key)
        texts = [[decode_ids(call.action, player) for call in group] for group in calls]
        states = [t.state for t in transitions]
        values = self._trainer.values(critic, states, texts, process_group)
        advantage = c.advantage(values).ravel()
        gathered = process_group.all_gather("advantages of a batch", advantage.tolist())
        weights = c.weight_fn(np.array(process_group.interleave(gathered)))
        local_weights = process_group.local_items(weights.tolist())
        flat = [call for group in calls for call in group]
        groups = [
            single_turn_group(call, w) for call, w in zip(flat, local_weights) if len(call.action)
        ]
        imitated = replay.draw(len(process_group.local_items(range(c.imitation_batch))), rng)
        groups += [single_turn_group(replayed_call(t, "demonstration")) for t in imitated]
        share = state_share(values.q - values.v[:, None]) if per_state > 1 else 0.0
        return groups, share
