"""ArCHer (arXiv 2402.19446): utterance critics learn off-policy from replayed turns, the policy's
tokens from their advantage.
"""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.archer.actor_groups import sample_utterances
from agentrl_jax.algorithms.archer.actor_phase import ActorPhase
from agentrl_jax.algorithms.archer.best_of_n_engine import BestOfNEngine, BestOfNSelector
from agentrl_jax.algorithms.archer.config import ArcherSettings, check_archer_config
from agentrl_jax.algorithms.archer.critic_phase import CriticPhase
from agentrl_jax.algorithms.archer.own_turns import OwnTurns, own_turn_metrics
from agentrl_jax.algorithms.archer.recorded_actor import RecordedActor
from agentrl_jax.algorithms.archer.replay_buffer import Transition, decode_ids
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.algorithms.policy_gradient.auxiliary import is_demonstration
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pytree import pytree_dataclass
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.trajectory_record import TrajectoryTraining

# Added to the step in the keys of utterances that are sampled for V's target, for the actor, and in
# the states of the iteration's own turns.
VALUE_TARGET_KEY_OFFSET, ACTOR_KEY_OFFSET = 2_000_000_000, 3_000_000_000
OWN_TURNS_KEY_OFFSET = 4_000_000_000
UNRANKED_AGENT = "unranked"  # with best-of-n: the name of the agent and engine that sample plainly


@pytree_dataclass
class ArcherAuxState:
    """The auxiliary state of training on the device."""

    actor_aux: Any
    critic: TrainState


@dataclass
class ArcherConfig(ArcherSettings):
    """ArCHer: its settings, and the algorithm that they make."""

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Archer":
        return Archer(self, policy, mesh, steps)


class Archer(Algorithm):
    """The trainer of ArCHer: replay, critic steps, then actor steps."""

    def __init__(self, config: ArcherSettings, policy: Policy, mesh: Mesh, steps: int) -> None:
        check_archer_config(config)
        self._config = c = copy.deepcopy(config)  # stateful components belong to this algorithm
        critic_steps = steps * c.critic_steps + c.pretrain_steps
        self.critic_trainer = c.critic.build(policy, mesh, critic_steps)
        actor_steps = max(1, (steps - c.warmup) * c.actor_steps)
        self._actor = RecordedActor(c.actor, policy, mesh, actor_steps)
        self._critic_phase = CriticPhase(c, self.critic_trainer)
        self._actor_phase = ActorPhase(c, self._actor, self.critic_trainer)
        self._selector: BestOfNSelector | None = None
        self._steps, self._seed, self._process_group = 0, 0, ProcessGroup()

    def init(self, key: Array, params: Params) -> TrainState:
        self._seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        return _with_aux(
            self._actor.init(key, params),
            self.critic_trainer.init(jax.random.fold_in(key, 1), params),
        )

    @property
    def _beta_state(self) -> Stateful | None:
        """The rule of an anchored advantage's beta, where it has a state."""
        beta = self._config.anchored and self._config.anchored.beta
        return beta if isinstance(beta, Stateful) else None

    def host_state(self) -> Any:
        replay = self._critic_phase.replay.state()
        return {
            "steps": self._steps,
            "actor": self._actor.host_state(),
            "replay": self._process_group.all_gather("what is replayed", replay),
            "beta": self._beta_state.state() if self._beta_state else None,
        }

    def load_host_state(self, state: Any) -> None:
        """An additional process takes the replay buffer of the last process of the checkpoint."""
        self._steps = state["steps"]
        self._actor.load_host_state(state["actor"])
        buffers = state["replay"]
        self._critic_phase.replay.load(buffers[min(jax.process_index(), len(buffers) - 1)])
        if self._beta_state:
            self._beta_state.load(state["beta"])

    def begin_phase(self, state: TrainState, runtime: Runtime) -> None:
        """With best-of-n, wrap the agent's engine; the plain engine stays as `UNRANKED_AGENT`, for
        utterances of V's target and of the actor.
        """
        c, agent = self._config, runtime.agents[self._config.agent]
        self.critic_trainer.use_invariants(runtime.invariants)
        if c.best_of_n == 1:
            return
        # An earlier phase may have wrapped it.
        engine = runtime.engines.get(UNRANKED_AGENT, runtime.engines[agent.engine])
        max_calls = self.critic_trainer.max_pairs
        target = state.extra.critic.params["target"]
        self._selector = BestOfNSelector(self.critic_trainer, target, agent)
        unranked = dataclasses.replace(agent, engine=UNRANKED_AGENT)
        runtime.add_agent(UNRANKED_AGENT, unranked, engine)
        ranked_engine = BestOfNEngine(engine, c.best_of_n, self._selector, max_calls)
        runtime.add_agent(c.agent, agent, ranked_engine)

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        """One iteration. It is a counted skip while the replay buffer of some process is empty."""
        c, process_group, step = self._config, runtime.process_group, self._steps
        self._steps, self._process_group = step + 1, process_group
        rng = np.random.default_rng([self._seed, step, process_group.index])
        agent = UNRANKED_AGENT if self._selector is not None else c.agent
        critic, phase, metrics = state.extra.critic, self._critic_phase, dict[str, Any](device=[])
        self._actor.begin_iteration(experience)
        actor = dataclasses.replace(state, extra=state.extra.actor_aux)
        value_key = (self._seed, VALUE_TARGET_KEY_OFFSET + step)

        phase.replay.begin_iteration()
        phase.store([group for group in experience if is_demonstration(group)], runtime)
        if c.pretrain_steps and step == 0:
            critic, metrics["pretraining"] = phase.pretrain(critic, runtime, agent, value_key, rng)
        rollouts = [group for group in experience if not is_demonstration(group)]
        episodes = phase.store(rollouts, runtime)
        counts = [len(phase.replay), sum(map(len, episodes))]
        sizes, new = zip(*process_group.all_gather("turns to replay", counts))
        metrics |= {"replay/turns": float(sum(sizes)), "skipped": float(min(sizes) == 0)}
        if min(sizes) == 0:
            return _with_aux(actor, critic), metrics

        own_turns, has_own = self._own_turns(rollouts, episodes, runtime, agent), sum(new) > 0
        if has_own:
            metrics |= own_turn_metrics(own_turns, critic, self.critic_trainer, process_group)
        value_key = (self._seed, VALUE_TARGET_KEY_OFFSET + step + 1)
        critic, metrics["critic"], reads = phase.train(critic, runtime, agent, value_key, rng)
        if has_own:
            all_reads = process_group.all_gather("turns that the critic read", reads)
            metrics["replay/reads_per_turn"] = sum(all_reads) / sum(new)
        if c.actor_steps and step >= c.warmup:
            if c.anchored is not None:
                correlation = metrics.get("critic/correlation", 0.0)
                actor, actor_metrics = self._actor_phase.train_on_own_turns(
                    actor, critic, own_turns, correlation, step, runtime
                )
            else:
                key = (self._seed, ACTOR_KEY_OFFSET + step)
                actor, actor_metrics = self._actor_phase.train_on_replay(
                    actor, critic, phase.replay, rollouts, runtime, agent, key, rng
                )
            metrics |= actor_metrics
            if has_own:
                kl = self._actor_phase.kl_from_start(actor, rollouts, runtime)
                metrics["kl_from_start"] = kl
        if self._selector is not None:
            self._selector.set_target_params(critic.params["target"])
        return _with_aux(actor, critic), metrics

    def training_of(
        self, trajectories: Sequence[Trajectory]
    ) -> Sequence[TrajectoryTraining | None]:
        return self._actor.training_of(trajectories)

    def _own_turns(
        self,
        rollouts: Sequence[Group],
        episodes: Sequence[Sequence[Transition]],
        runtime: Runtime,
        agent: str,
    ) -> OwnTurns:
        """The turns that the iteration played, with the utterances that an anchored advantage
        compares theirs with.
        """
        count = self._config.anchored.group_size if self._config.anchored else 0
        own_turns = OwnTurns(rollouts, episodes, [[] for episode in episodes for _ in episode])
        if not count:
            return own_turns
        player = runtime.agents[self._config.agent]
        key = (self._seed, OWN_TURNS_KEY_OFFSET + self._steps)
        calls = sample_utterances(own_turns.transitions, runtime, agent, count, key)
        alternatives = [[decode_ids(call.action, player) for call in group] for group in calls]
        return dataclasses.replace(own_turns, alternatives=alternatives)


def _with_aux(actor: TrainState, critic: TrainState) -> TrainState:
    return dataclasses.replace(actor, extra=ArcherAuxState(actor_aux=actor.extra, critic=critic))
