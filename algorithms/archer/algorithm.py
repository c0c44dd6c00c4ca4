"""ArCHer (arXiv 2402.19446): utterance critics learn off-policy from replayed turns, the policy's
tokens from their advantage.
"""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.archer.advantage_weights import identity
from agentrl_jax.algorithms.archer.best_of_n_engine import BestOfNEngine, BestOfNSelector
from agentrl_jax.algorithms.archer.critic_trainer import UtteranceCriticTrainerConfig
from agentrl_jax.algorithms.archer.replay_buffer import (
    ReplayBuffer,
    Transition,
    decode_ids,
    transitions_of,
)
from agentrl_jax.algorithms.policy_gradient.algorithm import PolicyGradientConfig
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.errors import UserError
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.messages import assistant
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pytree import pytree_dataclass
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Call, Group, RandomKey, Sampling, Source, Trajectory, Turn

# Added to the step in the keys of utterances that are sampled for V's target, and for the actor.
VALUE_TARGET_KEY_OFFSET, ACTOR_KEY_OFFSET = 2_000_000_000, 3_000_000_000
UNRANKED_AGENT = "unranked"  # with best-of-n: the name of the agent and engine that sample plainly


@pytree_dataclass
class ArcherAuxState:
    """The auxiliary state of training on the device."""

    actor_aux: Any
    critic: TrainState


@dataclass
class ArcherConfig:
    """Each iteration stores the new turns, takes `critic_steps` steps of the critic, and after
    `warmup` iterations `actor_steps` steps of the policy.

    An actor step is one of `actor` on `batch` replayed states: the utterances that the policy
    samples there now, each a turn whose `info["weight"]` is `weight_fn` of A(s, a) = min_k Q_k -
    min_k V_k; or with `train_on_replay` the replayed ones. `imitation_batch` replayed utterances
    are added as demonstrations, for an `Imitation` among the actor's auxiliaries.
    """

    critic: UtteranceCriticTrainerConfig
    # its advantage is `static_weights`, or `advantage_minus_baseline` with a token critic
    actor: PolicyGradientConfig
    weight_fn: Callable[[np.ndarray], np.ndarray] = identity
    train_on_replay: bool = False
    imitation_batch: int = 0  # utterances an actor step, of all processes
    capacity: int = 100_000  # transitions in the replay buffer of each process
    critic_steps: int = 50
    actor_steps: int = 3  # 0: the policy is not trained
    batch: int = 256  # states an actor step, of all processes
    warmup: int = 10  # first iterations, in which only the critic learns
    # CHAI: samples per action of the policy, of which the one of the largest min_k Qbar_k is taken
    best_of_n: int = 1
    agent: str = "policy"  # the agent that is trained

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Archer":
        return Archer(self, policy, mesh, steps)


class Archer(Algorithm):
    """The trainer of ArCHer: replay, critic steps, then actor steps."""

    def __init__(self, config: ArcherConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)
        if (
            min(c.critic_steps, c.batch, c.best_of_n) < 1
            or min(c.actor_steps, c.warmup, c.imitation_batch) < 0
        ):
            raise UserError(
                "ArCHer needs critic_steps, batch and best_of_n >= 1, and actor_steps, warmup and "
                "imitation_batch >= 0"
            )
        if c.imitation_batch and not c.actor.auxiliaries:
            raise UserError(
                "imitation_batch is learned by an auxiliary loss: give the actor an Imitation"
            )
        self.critic_trainer = c.critic.build(policy, mesh, steps * c.critic_steps)
        self._actor = c.actor.build(policy, mesh, max(1, (steps - c.warmup) * c.actor_steps))
        self._replay = ReplayBuffer(c.capacity)
        self._selector: BestOfNSelector | None = None
        self._steps, self._seed, self._process_group = 0, 0, ProcessGroup()

    def init(self, key: Array, params: Params) -> TrainState:
        self._seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        return _with_aux(
            self._actor.init(key, params),
            self.critic_trainer.init(jax.random.fold_in(key, 1), params),
        )

    def host_state(self) -> Any:
        buffers = self._process_group.all_gather("what is replayed", self._replay.state())
        return {"steps": self._steps, "actor": self._actor.host_state(), "replay": buffers}

    def load_host_state(self, state: Any) -> None:
        """An additional process takes the replay buffer of the last process of the checkpoint."""
        self._steps = state["steps"]
        self._actor.load_host_state(state["actor"])
        self._replay.load(state["replay"][min(jax.process_index(), len(state["replay"]) - 1)])

    def begin_phase(self, state: TrainState, runtime: Runtime) -> None:
        """With best-of-n, wrap the agent's engine; the plain engine stays as `UNRANKED_AGENT`, for
        utterances of V's target and of the actor.
        """
        c, agent = self._config, runtime.agents[self._config.agent]
        if c.best_of_n == 1:
            return
        # An earlier phase may have wrapped it.
        engine = runtime.engines.get(UNRANKED_AGENT, runtime.engines[agent.engine])
        max_calls = self.critic_trainer.rows_per_microbatch
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
        agent = runtime.agents[c.agent]
        for group in experience:
            for trajectory in group.trajectories:
                self._replay.add(transitions_of(trajectory, agent, c.critic.loss.gamma))
        sizes = process_group.all_gather("turns to replay", len(self._replay))
        metrics: dict[str, Any] = {
            "replay/turns": float(sum(sizes)),
            "skipped": float(min(sizes) == 0),
            "device": [],
        }
        if min(sizes) == 0:
            return state, metrics
        critic, metrics["critic"] = self._update_critic(state.extra.critic, runtime, rng)
        actor = dataclasses.replace(state, extra=state.extra.actor_aux)
        for i in range(c.actor_steps if step >= c.warmup else 0):
            key = (self._seed, ACTOR_KEY_OFFSET + step, i)
            actor, actor_metrics = self._update_actor(actor, critic, runtime, rng, key)
            # the next utterances are sampled from the updated policy; the version stays, so that
            # followers of published weights see the iteration's last ones only
            if not c.train_on_replay:
                version = runtime.published_versions.get(agent.engine, 0)
                runtime.engines[agent.engine].publish(actor.params, version)
            metrics["device"] += _with_baseline_metrics(actor_metrics)
            metrics |= {k: x for k, x in actor_metrics.items() if k.startswith("advantage/")}
        if self._selector is not None:
            self._selector.set_target_params(critic.params["target"])
        return _with_aux(actor, critic), metrics

    def _update_critic(
        self, critic: TrainState, runtime: Runtime, rng: np.random.Generator
    ) -> tuple[TrainState, list[dict[str, Array]]]:
        """All critic steps of an iteration; the utterances of V's targets are sampled in one batch
        before the first.
        """
        c, process_group, metrics = self._config, runtime.process_group, []
        count = len(process_group.local_items(range(c.critic.batch)))
        transitions = self._replay.draw(c.critic_steps * count, rng)
        value_utterances = [t.utterance for t in transitions]
        if c.critic.loss.needs_policy_utterances:
            key = (self._seed, VALUE_TARGET_KEY_OFFSET + self._steps)
            calls = self._sample_utterances(transitions, runtime, key)
            value_utterances = [decode_ids(x.action, runtime.agents[c.agent]) for x in calls]
        for i in range(c.critic_steps):
            part = slice(i * count, (i + 1) * count)
            critic, step_metrics = self.critic_trainer.update(
                critic, transitions[part], value_utterances[part], process_group
            )
            metrics.append(step_metrics)
        return critic, metrics

    def _update_actor(
        self,
        actor: TrainState,
        critic: TrainState,
        runtime: Runtime,
        rng: np.random.Generator,
        key: RandomKey,
    ) -> tuple[TrainState, dict[str, Any]]:
        """One step of the policy on the advantages of utterances."""
        c, process_group = self._config, runtime.process_group
        agent = runtime.agents[c.agent]
        transitions = self._replay.draw(len(process_group.local_items(range(c.batch))), rng)
        if c.train_on_replay:
            calls = [replayed_call(t, "sampled") for t in transitions]
        else:
            calls = self._sample_utterances(transitions, runtime, key)
        states = [t.state for t in transitions]
        utterances = [decode_ids(call.action, agent) for call in calls]
        advantage = self.critic_trainer.advantage(critic, states, utterances, process_group)
        gathered = process_group.all_gather("advantages of a batch", advantage.tolist())
        weights = c.weight_fn(np.array(process_group.interleave(gathered)))
        local_weights = process_group.local_items(weights.tolist())
        groups = [
            single_turn_group(call, w) for call, w in zip(calls, local_weights) if len(call.action)
        ]
        imitated = self._replay.draw(len(process_group.local_items(range(c.imitation_batch))), rng)
        groups += [single_turn_group(replayed_call(t, "demonstration")) for t in imitated]
        return self._actor.step(actor, groups, runtime)

    def _sample_utterances(
        self, transitions: Sequence[Transition], runtime: Runtime, key: RandomKey
    ) -> list[Call]:
        """Utterances that the current policy samples in these states."""
        agent = UNRANKED_AGENT if self._selector is not None else self._config.agent
        prompts, key = [t.state.ids for t in transitions], (*key, runtime.process_group.index)
        return [call for (call,) in runtime.run(runtime.sample(agent, prompts, 1, key))]


def _with_aux(actor: TrainState, critic: TrainState) -> TrainState:
    return dataclasses.replace(actor, extra=ArcherAuxState(actor_aux=actor.extra, critic=critic))


def _with_baseline_metrics(actor_metrics: dict[str, Any]) -> list[dict[str, Array]]:
    """The device metrics of each actor update, with those of its token critic as `baseline/...`."""
    updates = actor_metrics["device"]
    baseline = [
        {f"baseline/{name}": update[name] for name in ("value", "value_loss")}
        for update in actor_metrics.get("critic", [])
    ]
    return [update | extra for update, extra in zip(updates, baseline or [{}] * len(updates))]


def replayed_call(transition: Transition, source: Source) -> Call:
    """A replayed utterance as a call; the weights that sampled it and its log-probs are unknown."""
    n = len(transition.utterance.ids)
    version = np.full(n, -1, np.int32)
    sampling = Sampling(temperature=transition.temperature)
    return Call(
        transition.state.ids,
        transition.utterance.ids,
        np.zeros(n, np.float32),
        version,
        sampling,
        "stop",
        source,
    )


def single_turn_group(call: Call, weight: float | None = None) -> Group:
    """An utterance as a trajectory of one turn, with its weight in the actor's loss."""
    turn = Turn((call,), assistant(""), (), 0.0, info={} if weight is None else {"weight": weight})
    return Group("", (Trajectory((), (turn,)),))
