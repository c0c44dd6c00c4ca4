"""Reward models: a policy's trunk with a value head, trained on which of two trajectories is preferred (Bradley-Terry)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from agentrl_jax.algorithms.critics import CriticConfig, HeadMaker, ValueModel
from agentrl_jax.algorithms.reward_models import bradley_terry, preference_loss, score_at_end
from agentrl_jax.batch import Batch, Layout, split
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.record import AnyArray, record
from agentrl_jax.rows import Row, rows_of
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import settle
from agentrl_jax.trajectories import Group, Trajectory

Loss = Callable[[Array, Array, Array, Array, Array, Array], Array]  # as `reward_models.preference_loss`


@record
class PreferenceBatch:
    """Rows 2i and 2i + 1 are a pair, the preferred one first; the weight of a pair is on one token of the first."""

    batch: Batch
    length: Int[AnyArray, "B"]
    pair: Float[AnyArray, "B"]  # 1 for rows of a pair, 0 for padding


def at_the_end(chosen: Array, rejected: Array, chosen_tokens: Array, rejected_tokens: Array, m: Array, n: Array) -> Float[Array, "B"]:
    """Bradley-Terry on the values of the last tokens; `reward_models.preference_loss` counts every token from the first that differs."""
    return bradley_terry(score_at_end(chosen, m), score_at_end(rejected, n))


@dataclass
class PreferenceConfig:
    """Groups of two or more trajectories; every pair with different returns is a preference. Rows of one context are asked for."""

    head: HeadMaker  # `models.heads.HeadConfig`
    loss: Loss = preference_loss
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    length: int = 256  # tokens of the longest trajectory
    microbatch: int = 16  # pairs per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Preferences":
        return Preferences(self, policy, mesh, steps)


class Preferences:
    """Implements `Algorithm`; the state's parameters are the reward model's."""

    def __init__(self, config: PreferenceConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config, self._model = config, CriticConfig(config.head).model(policy)
        self._learner = Learner(self._model, config.optimizer.build(steps), self._loss, mesh, self._model.scores)
        self._rows = self._learner.share.rows(2 * config.microbatch)
        if self._rows % 2:
            raise UserError("a pair's two rows are on one process: choose a microbatch that the mesh splits into pairs")

    @property
    def model(self) -> ValueModel:
        return self._model

    def init(self, key: Key[Array, ""], params: Params) -> TrainState:
        """A fresh head on a policy's weights."""
        return self._learner.init(key, self._model.around(params, key))

    def host_state(self) -> Any:
        return None

    def load_host_state(self, state: Any) -> None: ...

    def _loss(self, score: Array, batch: PreferenceBatch) -> tuple[Array, dict[str, Array]]:
        tokens, length, real = jnp.asarray(batch.batch.tokens), jnp.asarray(batch.length), jnp.asarray(batch.pair)
        score = jnp.where(jnp.arange(score.shape[1])[None] < length[:, None], score, 0.0)  # both padded alike
        pairs = [x[i::2] for x in (score, tokens, length) for i in (0, 1)]
        loss = self._config.loss(*pairs)
        margin = score_at_end(score[0::2], length[0::2]) - score_at_end(score[1::2], length[1::2])
        spread = {"preference_loss": loss, "accuracy": (margin > 0).astype(loss.dtype), "margin": margin}

        def everywhere(x: Array) -> Array:
            return jnp.broadcast_to((jnp.repeat(x, 2) * real)[:, None], score.shape)

        return everywhere(loss), {name: everywhere(x) for name, x in spread.items()}

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        """One optimizer step on the mean over all pairs. Without any it is a counted skip."""
        pairs = [pair for group in experience for pair in preferences(group)]
        total = sum(runtime.hosts.gather("pairs", len(pairs)))
        batches = self._batches([_row(t) for pair in pairs for t in pair], total, runtime.hosts)
        if not batches:
            return state, {"pairs": 0.0, "skipped": 1.0, "device": []}
        state, found = self._learner.update(state, batches)
        return state, {"pairs": float(total), "skipped": 0.0, "device": [found]}

    def _batches(self, rows: list[Row], total: int, hosts: Hosts) -> list[PreferenceBatch]:
        c, count = self._config, len(rows)
        if too_long := [len(row) for row in rows if len(row) > c.length]:
            raise UserError(f"a trajectory has {max(too_long)} tokens but the reward model reads {c.length}: raise length")
        zeros = np.zeros(count, np.int64)
        layout = settle(hosts, self._learner.share, Layout(rows, c.length, count, np.arange(count), zeros, zeros), self._rows)
        if layout is None:
            return []
        weight, length = np.zeros((layout.bins, c.length), np.float32), np.zeros(layout.bins, np.int32)
        pair, bins = np.zeros(layout.bins, np.float32), layout.bin_of
        last = [int(np.flatnonzero(row.action_mask)[-1]) for row in rows]
        weight[bins[0::2], last[0::2]] = 1.0 / total
        length[bins], pair[bins] = [len(row) for row in rows], 1.0
        return split(PreferenceBatch(batch=layout.batch(weight), length=length, pair=pair), self._rows)

    def score(self, state: TrainState, trajectories: Sequence[Trajectory]) -> np.ndarray:
        """The reward model's score of each trajectory: its value at the last token."""
        rows = [_row(trajectory) for trajectory in trajectories]
        if not rows:
            return np.zeros(0)
        found = []
        for batch in self._batches(rows if len(rows) % 2 == 0 else [*rows, rows[-1]], len(rows), Hosts()):
            (values,) = self._learner.score(state.params, batch.batch)
            length = np.maximum(np.asarray(batch.length) - 1, 0)
            found.append(np.take_along_axis(self._learner.share.take(values), length[:, None], axis=1)[:, 0])
        return np.concatenate(found)[: len(rows)]


def preferences(group: Group) -> list[tuple[Trajectory, Trajectory]]:
    """All (preferred, other) pairs of a group's trajectories: those with different returns."""
    members = [trajectory for trajectory in group.trajectories if trajectory.turns]
    return [(a, b) for a in members for b in members if a.total_reward > b.total_reward]


def _row(trajectory: Trajectory) -> Row:
    rows = rows_of(trajectory)
    if len(rows) != 1:
        raise UserError("a reward model reads a trajectory as one context: keep the whole history in it")
    return rows[0]
