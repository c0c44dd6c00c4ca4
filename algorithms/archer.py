"""ArCHer (arXiv 2402.19446): critics of whole utterances learn from replayed turns, and the policy's tokens from their advantage."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.advantages import Credit, static_weights
from agentrl_jax.algorithms.facts import known
from agentrl_jax.algorithms.policy_gradient import PolicyGradientConfig
from agentrl_jax.algorithms.ranked_engine import RankedEngine
from agentrl_jax.algorithms.turn_replay import Transition, TurnReplay, said, transitions_of
from agentrl_jax.algorithms.utterance_learner import UtteranceValues, ValuesConfig
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import TrainState
from agentrl_jax.messages import assistant
from agentrl_jax.policy import Params, Policy
from agentrl_jax.record import record
from agentrl_jax.rows import Evidence
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import brought
from agentrl_jax.speaking import Agent
from agentrl_jax.trajectories import Call, Group, Key, Sampling, Source, Trajectory, Turn

JUDGING, ACTING = 2_000_000_000, 3_000_000_000  # added to the step in the keys of utterances that V is judged by, and that are trained
UNRANKED = "unranked"  # the agent's engine and its agent, where another chooses


def as_it_is(advantage: np.ndarray) -> np.ndarray:
    """REINFORCE: A."""
    return advantage


def centred(advantage: np.ndarray) -> np.ndarray:
    """A less its mean over the batch: while a small critic's V is behind its Q, the rest is about the states and not what was said.

    Not the paper's, which takes A as it is.
    """
    return advantage - advantage.mean() if len(advantage) else advantage


@dataclass
class Exponential:
    """AWR: exp(`inverse_temperature` A), at most `most`."""

    inverse_temperature: float = 1.0
    most: float = float("inf")

    def __call__(self, advantage: np.ndarray) -> np.ndarray:
        return np.minimum(np.exp(self.inverse_temperature * advantage), self.most)


def beyond_baseline(evidence: Evidence) -> Credit:
    """A(s, a) - b(s, a_<i) for each token i of an utterance; b is a critic of tokens, drawn to A."""
    weight = static_weights(evidence)
    return Credit(weight - known(evidence.token_value, "value under a critic"), weight)


@record
class Kept:
    """What training keeps on the device beside the policy."""

    actor: Any
    values: TrainState


@dataclass
class ArcherConfig:
    """Each iteration stores the new turns, then takes `critic_steps` steps of the values, and after `warmup` iterations `actor_steps`.

    An actor step is one of `actor` on `batch` replayed states: the utterances that the policy writes there now, each a turn whose
    `info["weight"]` is `weight` of A(s, a) = min_k Q_k - min_k V_k; or with `on_data` the replayed ones. `imitated` replayed
    utterances go with them as demonstrations, for an `Imitation` among the actor's auxiliaries.
    """

    values: ValuesConfig
    actor: PolicyGradientConfig  # whose advantage is `static_weights`, or `beyond_baseline` with a critic of tokens
    weight: Callable[[np.ndarray], np.ndarray] = as_it_is
    on_data: bool = False
    imitated: int = 0  # an actor step, of all processes
    capacity: int = 100_000  # transitions that each process keeps
    critic_steps: int = 50
    actor_steps: int = 3  # 0: the policy stays as it is
    batch: int = 256  # states an actor step, of all processes
    warmup: int = 10  # first iterations, in which only the critic learns
    choices: int = 1  # CHAI: so many utterances are drawn wherever the policy acts, and the one of the largest min_k Qbar_k is said
    agent: str = "policy"  # who acts

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Archer":
        return Archer(self, policy, mesh, steps)


class Archer:
    """Implements `Algorithm` and `Acting`."""

    def __init__(self, config: ArcherConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)
        if min(c.critic_steps, c.batch, c.choices) < 1 or min(c.actor_steps, c.warmup, c.imitated) < 0:
            raise UserError("ArCHer needs critic_steps, batch and choices >= 1, and actor_steps, warmup and imitated >= 0")
        if c.imitated and not c.actor.auxiliaries:
            raise UserError("what is imitated is learned by an auxiliary: give the actor an Imitation")
        self.values = c.values.build(policy, mesh, steps * c.critic_steps)
        self._actor = c.actor.build(policy, mesh, max(1, (steps - c.warmup) * c.actor_steps))
        self._replay = TurnReplay(c.capacity)
        self._chooser: Chooser | None = None
        self._steps, self._seed, self._hosts = 0, 0, Hosts()

    def init(self, key: Array, params: Params) -> TrainState:
        self._seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        return _beside(self._actor.init(key, params), self.values.init(jax.random.fold_in(key, 1), params))

    def host_state(self) -> Any:
        kept = self._hosts.gather("what is replayed", self._replay.state())
        return {"steps": self._steps, "actor": self._actor.host_state(), "replay": kept}

    def load_host_state(self, state: Any) -> None:
        """A process that is new takes what the last one of before had stored."""
        self._steps = state["steps"]
        self._actor.load_host_state(state["actor"])
        self._replay.load(state["replay"][min(jax.process_index(), len(state["replay"]) - 1)])

    def act(self, state: TrainState, runtime: Runtime) -> None:
        """Put an engine that chooses in the place of the agent's, which keeps its own for the utterances that V is judged by."""
        c, who = self._config, runtime.agents[self._config.agent]
        if c.choices == 1:
            return
        engine = runtime.engines[who.engine]
        self._chooser = Chooser(self.values, state.extra.values.params["target"], who)
        runtime.add(UNRANKED, dataclasses.replace(who, engine=UNRANKED), engine)
        runtime.add(c.agent, who, RankedEngine(engine, c.choices, self._chooser, self.values.rows))

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        """One iteration. While some process has no turn at all it is a counted skip."""
        c, hosts, step = self._config, runtime.hosts, self._steps
        self._steps, self._hosts = step + 1, hosts
        rng = np.random.default_rng([self._seed, step, hosts.index])
        who = runtime.agents[c.agent]
        for trajectory in (one for group in experience for one in group.trajectories):
            self._replay.add(transitions_of(trajectory, who, c.values.goal.gamma))
        sizes = hosts.gather("turns to replay", len(self._replay))
        metrics: dict[str, Any] = {"replay/turns": float(sum(sizes)), "skipped": float(min(sizes) == 0), "device": []}
        if min(sizes) == 0:
            return state, metrics
        values, metrics["critic"] = self._criticised(state.extra.values, runtime, rng)
        actor = dataclasses.replace(state, extra=state.extra.actor)
        for i in range(c.actor_steps if step >= c.warmup else 0):
            actor, found = self._acted(actor, values, runtime, rng, (self._seed, ACTING + step, i))
            if not c.on_data:  # the next utterances are the moved policy's; who follows published weights hears of the iteration's last
                runtime.engines[who.engine].publish(actor.params, runtime.versions.get(who.engine, 0))
            baseline = [{f"baseline/{name}": one[name] for name in ("value", "value_loss")} for one in found.get("critic", [])]
            metrics["device"] += [one | beside for one, beside in zip(found["device"], baseline or [{}] * len(found["device"]))]
            metrics |= {name: value for name, value in found.items() if name.startswith("advantage/")}
        if self._chooser is not None:
            self._chooser.take_up(values.params["target"])
        return _beside(actor, values), metrics

    def _criticised(self, values: TrainState, runtime: Runtime, rng: np.random.Generator) -> tuple[TrainState, list[dict[str, Array]]]:
        """The critic's steps; the utterances that V is judged by are all drawn at once."""
        c, hosts, on_device = self._config, runtime.hosts, []
        count = len(hosts.mine(range(c.values.batch)))
        drawn = self._replay.draw(c.critic_steps * count, rng)
        judged = [t.utterance for t in drawn]
        if c.values.goal.fresh:
            who = runtime.agents[c.agent]
            judged = [said(call.action, who) for call in self._uttered(drawn, runtime, (self._seed, JUDGING + self._steps))]
        for i in range(c.critic_steps):
            part = slice(i * count, (i + 1) * count)
            values, found = self.values.update(values, drawn[part], judged[part], hosts)
            on_device.append(found)
        return values, on_device

    def _acted(
        self, actor: TrainState, values: TrainState, runtime: Runtime, rng: np.random.Generator, key: Key
    ) -> tuple[TrainState, dict[str, Any]]:
        """One step of the policy on the advantages of utterances."""
        c, hosts, who = self._config, runtime.hosts, runtime.agents[self._config.agent]
        drawn = self._replay.draw(len(hosts.mine(range(c.batch))), rng)
        calls = [replayed(t, "sampled") for t in drawn] if c.on_data else self._uttered(drawn, runtime, key)
        advantage = self.values.advantage(values, [t.state for t in drawn], [said(call.action, who) for call in calls], hosts)
        shares = hosts.gather("advantages of a batch", advantage.tolist())
        weight = hosts.mine(c.weight(np.array(hosts.merged(shares))).tolist())
        groups = [turn_of(call, w) for call, w in zip(calls, weight) if len(call.action)]
        shown = self._replay.draw(len(hosts.mine(range(c.imitated))), rng)
        return self._actor.step(actor, [*groups, *(turn_of(replayed(t, "demonstration")) for t in shown)], runtime)

    def _uttered(self, drawn: Sequence[Transition], runtime: Runtime, key: Key) -> list[Call]:
        """What the policy says now in these states."""
        agent = UNRANKED if self._chooser is not None else self._config.agent
        prompts = [t.state.ids for t in drawn]
        return [call for (call,) in runtime.run(runtime.sample(agent, prompts, 1, (*key, runtime.hosts.index)))]


class Chooser:
    """Which of some utterances the target thinks the most of. It keeps a copy of the target on this process's first device."""

    def __init__(self, values: UtteranceValues, target: Params, agent: Agent) -> None:
        self._values, self._agent = values, agent
        self.take_up(target)
        values.warm_up_worth(self._target)

    def take_up(self, target: Params) -> None:
        """Judge by these weights from now on."""
        here = jax.local_devices()[0]
        self._target = jax.tree.map(lambda x: jnp.copy(jax.device_put(brought(x), here)), target)

    def __call__(self, choices: Sequence[Sequence[Call]]) -> list[int]:
        calls = [call for some in choices for call in some]
        states, utterances = ([said(ids, self._agent) for ids in texts] for texts in zip(*((call.prompt, call.action) for call in calls)))
        worth = self._values.worth(self._target, states, utterances)
        return [int(np.argmax(part)) for part in np.split(worth, np.cumsum([len(some) for some in choices])[:-1])]


def _beside(actor: TrainState, values: TrainState) -> TrainState:
    return dataclasses.replace(actor, extra=Kept(actor=actor.extra, values=values))


def replayed(turn: Transition, source: Source) -> Call:
    """A replayed utterance as a call; who wrote it and how likely it was is not known any more."""
    n = len(turn.utterance.ids)
    nobody = np.full(n, -1, np.int32)
    sampling = Sampling(temperature=turn.temperature)
    return Call(turn.state.ids, turn.utterance.ids, np.zeros(n, np.float32), nobody, sampling, "stop", source)


def turn_of(call: Call, weight: float | None = None) -> Group:
    """An utterance as a turn of its own, with the weight that the actor gives it."""
    turn = Turn((call,), assistant(""), (), 0.0, info={} if weight is None else {"weight": weight})
    return Group("", (Trajectory((), (turn,)),))
