"""Trains critics of utterances, and asks them: replayed turns to batches of few shapes, a step, the target after it."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.texts import Texts, bucket, padded, reader
from agentrl_jax.algorithms.turn_replay import Said, Transition
from agentrl_jax.algorithms.utterance_values import Critic, CriticBatch, Exchanges, Goal, Outcome, Pairs, Sampled, Twins, utterance_loss
from agentrl_jax.batch import Batch, split
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Encoder, Params, Policy


@runtime_checkable
class EncoderMaker(Protocol):
    """What makes vectors of texts (`models.utterance_critic.OwnEncoder`, `PolicyTrunk`)."""

    def build(self, policy: Policy) -> Encoder: ...

    def start(self, encoder: Any, params: Params, key: Any, mesh: Any) -> Params:
        """The weights that it starts from; `params` are the policy's."""
        ...

    def tokens(self) -> Any | None:
        """Its tokenizer; None: it reads the policy's ids."""
        ...


@runtime_checkable
class CriticMaker(Protocol):
    """A config of the heads (`models.utterance_critic.UtteranceCriticConfig`)."""

    def build(self, encoder: Any) -> Critic: ...


@dataclass
class ValuesConfig:
    """The mean over a batch of sum_k L(Q_k) + sum_k L(V_k), L of `goal`; after each step target += `polyak` (critic - target)."""

    critic: CriticMaker
    encoder: EncoderMaker
    goal: Goal = field(default_factory=Sampled)
    polyak: float = 0.1
    cut_is_end: bool = True  # a time limit counts as done, as published; off: the value of the state that was cut goes on
    batch: int = 256  # exchanges a step, of all processes
    scale: float = 1.0  # of the loss; m is the released sum over m micro-batches of their means
    optimizer: AdamWConfig = field(default_factory=lambda: AdamWConfig(2e-5))
    states: Sequence[int] = (512,)  # lengths that states are padded to; of what is longer the end is read
    utterances: Sequence[int] = (64,)
    microbatch: int = 256  # exchanges per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "UtteranceValues":
        return UtteranceValues(self, policy, mesh, steps)


class UtteranceValues:
    """The critic, its target and their optimizer, over the mesh of the policy."""

    def __init__(self, config: ValuesConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config, self._mesh = config, mesh
        c = config
        if not 0 < c.polyak <= 1 or not 0 <= c.goal.gamma <= 1 or c.scale <= 0:
            raise UserError(f"values need polyak in (0, 1], gamma in [0, 1] and scale > 0: {c}")
        if not (c.states and c.utterances) or min(c.batch, c.microbatch, *c.states, *c.utterances) < 1:
            raise UserError(f"values need batch, microbatch and all lengths of at least 1: {c}")
        self._encoder = c.encoder.build(policy)
        self._critic = c.critic.build(self._encoder)
        self.twins = Twins(self._critic)
        loss, tx = functools.partial(utterance_loss, c.goal), c.optimizer.build(steps)
        self._learner = Learner(self.twins, tx, loss, mesh, self.twins.read)
        self._judge = Learner(self.twins, tx, loss, mesh, self.twins.advantage)
        self._worth = jax.jit(self.twins.worth)
        self._follow = jax.jit(functools.partial(followed, c.polyak), donate_argnums=0)
        self._read = reader(c.encoder.tokens())
        self.rows = self._learner.share.rows(c.microbatch)

    def init(self, key: Array, params: Params) -> TrainState:
        """Critic and target start alike; `params` are the policy's. Compiles what any lengths will need."""
        c, (heads, encoder) = self._config, jax.random.split(key)
        own = {**self._critic.init(heads), "encoder": c.encoder.start(self._encoder, params, encoder, self._mesh)}
        state = self._learner.init(key, self.twins.around(own))
        for pairs in self._blank():
            exchanges = Exchanges(**vars(pairs), following=pairs.states, judged=pairs.utterances)
            outcome = Outcome(reward=pairs.weight, goes_on=pairs.action_mask, to_go=pairs.weight)
            self._learner.warm_up(state, CriticBatch(batch=exchanges, outcome=outcome))
            self._judge.score(state.params, pairs)
        return state

    def update(
        self, state: TrainState, drawn: Sequence[Transition], judged: Sequence[Said], hosts: Hosts
    ) -> tuple[TrainState, dict[str, Array]]:
        """A step on this process's exchanges, and the target after it. V is drawn to what the target says of `judged`."""
        c = self._config
        seats, rows = self._seats(len(drawn), hosts)
        states, following, utterances, others = self._texts(
            hosts, rows, seats, ([t.state for t in drawn], [t.following for t in drawn]), ([t.utterance for t in drawn], judged)
        )
        weight = column(np.full(len(drawn), c.scale / c.batch), seats, rows)
        goes_on = [not (t.terminated or (t.truncated and c.cut_is_end)) for t in drawn]
        exchanges = Exchanges(**vars(counted(weight)), states=states, utterances=utterances, following=following, judged=others)
        outcome = Outcome(
            reward=column([t.reward for t in drawn], seats, rows), goes_on=column(goes_on, seats, rows) > 0,
            to_go=column([t.to_go for t in drawn], seats, rows),
        )  # fmt: skip
        state, found = self._learner.update(state, split(CriticBatch(batch=exchanges, outcome=outcome), self.rows))
        return dataclasses.replace(state, params=self._follow(state.params)), found

    def advantage(self, state: TrainState, states: Sequence[Said], utterances: Sequence[Said], hosts: Hosts) -> np.ndarray:
        """min_k Q_k(s, a) - min_k V_k(s) of this process's pairs, float32 [n]."""
        seats, rows = self._seats(len(states), hosts)
        if not rows:
            return np.zeros(0, np.float32)
        weight = column(np.ones(len(states)), seats, rows)
        first, second = self._texts(hosts, rows, seats, (states,), (utterances,))
        pairs = split(Pairs(**vars(counted(weight)), states=first, utterances=second), self.rows)
        found = [self._judge.score(state.params, part)[0] for part in pairs]  # all are dispatched before the first is waited for
        return np.concatenate([self._judge.share.take(x) for x in found])[seats, 0]

    def warm_up_worth(self, target: Params) -> None:
        """Compile what `worth` will need for any lengths."""
        for pairs in self._blank():
            self._worth(target, pairs)

    def worth(self, target: Params, states: Sequence[Said], utterances: Sequence[Said]) -> np.ndarray:
        """min_k Qbar_k(s, a) of at most `rows` pairs under a copy of the target, computed where that is, float32 [n]."""
        seats, ids = np.arange(len(states)), []
        for texts, lengths in ((states, self._config.states), (utterances, self._config.utterances)):
            rows = self._read(texts, max(lengths))
            ids.append(padded(rows, bucket(lengths, max(map(len, rows), default=0)), self.rows, seats))
        pairs = Pairs(**vars(counted(column(np.ones(len(seats)), seats, self.rows))), states=ids[0], utterances=ids[1])
        return np.asarray(self._worth(target, pairs))[seats, 0]

    def _blank(self) -> Iterator[Pairs]:
        """A microbatch without any pair, of each shape that there is."""
        c, nobody = self._config, np.arange(0)
        for lengths in itertools.product(c.states, c.utterances):
            states, utterances = (padded([], length, self.rows, nobody) for length in lengths)
            yield Pairs(**vars(counted(column([], nobody, self.rows))), states=states, utterances=utterances)

    def _seats(self, count: int, hosts: Hosts) -> tuple[np.ndarray, int]:
        """The rows of this process's texts among those of its team, and how many rows every team has: whole microbatches."""
        share, counts = self._learner.share, hosts.gather("exchanges", count)
        before = sum(counts[p] for p in share.team if p < share.index)
        most = max(sum(counts[p] for p in team) for team in share.teams)
        return before + np.arange(count), math.ceil(most / self.rows) * self.rows

    def _texts(self, hosts: Hosts, rows: int, seats: np.ndarray, *kinds: Sequence[Sequence[Said]]) -> list[Texts]:
        """Texts of two kinds, states and utterances; all of a kind have one length, also in other processes."""
        lengths = self._config.states, self._config.utterances
        ids = [[self._read(texts, max(some)) for texts in kind] for kind, some in zip(kinds, lengths)]
        longest = [max((len(one) for texts in kind for one in texts), default=0) for kind in ids]
        most = np.max(hosts.gather("the longest texts", longest), axis=0).tolist()
        found = []
        for kind, some, length in zip(ids, lengths, most):
            found += [padded(texts, bucket(some, length), rows, seats) for texts in kind]
        return found


def column(values: Any, seats: np.ndarray, rows: int) -> np.ndarray:
    """Numbers at their rows, 0 elsewhere, float32 [rows, 1]."""
    out = np.zeros((rows, 1), np.float32)
    out[seats, 0] = values
    return out


def counted(weight: np.ndarray) -> Batch:
    """One column of a batch, with a token where there is a weight."""
    real = weight > 0
    zeros, none = np.zeros(weight.shape, np.int32), np.zeros(weight.shape, np.float32)
    return Batch(
        tokens=zeros, positions=zeros, segment_ids=real.astype(np.int32), turns=zeros, action_mask=real, sampler_logp=none, version=zeros,
        temperature=none + 1, weight=weight,
    )  # fmt: skip


def followed(rate: float, params: Params) -> Params:
    """target += rate (critic - target)."""
    return {**params, "target": jax.tree.map(lambda old, new: old + rate * (new - old), params["target"], params["critic"])}
