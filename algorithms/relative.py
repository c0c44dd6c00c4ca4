"""Learning from differences of two rewards: REFUEL, REBEL and DPO on pairs of replies to one prompt, without a critic."""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from agentrl_jax.algorithms.losses import direct_preference, relative_regression
from agentrl_jax.algorithms.pairing import Pair, Tokens, pack_pairs, pairs_of, tokens_of
from agentrl_jax.algorithms.preferences import PreferenceConfig
from agentrl_jax.algorithms.rewards import Reward
from agentrl_jax.algorithms.sequences import sum_over
from agentrl_jax.algorithms.top_layers import only_top
from agentrl_jax.batch import Batch, Layout, split
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.record import AnyArray, record
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import settle
from agentrl_jax.trajectories import Group

Objective = Callable[[Array, Array], Array]  # (d, r - r') -> the loss of a pair, elementwise


@dataclass
class Regression:
    """REFUEL's and REBEL's loss; `eta` must fit the size of reward differences."""

    eta: float

    def __call__(self, moved: Array, gap: Array) -> Array:
        return relative_regression(moved, gap, eta=self.eta)


@dataclass
class Preferred:
    """DPO's loss on the order of the two rewards."""

    beta: float

    def __call__(self, moved: Array, gap: Array) -> Array:
        return direct_preference(moved, gap, beta=self.beta)


@record
class RelativeBatch:
    """What the loss reads beside the batch; a pair's rows are in one packed row."""

    batch: Batch  # the weight of a pair is on the first token of its first reply
    ids: Int[AnyArray, "B T"]  # of pairs: in [0, T)
    sign: Float[AnyArray, "B T"]  # 1 for tokens of the first reply, -1 for those of the second, 0 elsewhere
    gap: Float[AnyArray, "B T"]  # r - r', at each token of the pair
    anchor_logp: Float[AnyArray, "B T"]  # under pi_t
    fresh: Float[AnyArray, "B"]  # 1 where pi is still pi_t


@record
class RelativeBeside:
    """What training keeps on the device beside the policy."""

    reference: Params | None  # where training began
    judge: TrainState | None


def log_ratio(logp: Float[Array, "B T"], batch: RelativeBatch) -> Float[Array, "B T"]:
    """d = sum over y_h of (logp - anchor) - the same sum over y'_h, at every token of the pair.

    Where pi is still pi_t the anchor is the log-prob itself, so that d is exactly 0: what another program has computed of the same
    weights may differ by its rounding.
    """
    sign = jnp.asarray(batch.sign)
    anchor = jnp.where(jnp.asarray(batch.fresh)[:, None] > 0, jax.lax.stop_gradient(logp), batch.anchor_logp)
    return sum_over(jnp.asarray(batch.ids), jnp.where(sign != 0, sign * (logp - anchor), 0.0))


@dataclass
class RelativeConfig:
    """Groups of `Pairs`, or of any even number of independent dialogues; the log-ratio is over the tokens of the turn where two part."""

    objective: Objective
    rewards: Reward | None = None  # changes what dialogues earned
    judge: PreferenceConfig | None = None  # a reward model scores dialogues; it learns from the order of what they earned ...
    judge_steps: int = 0  # ... in so many first steps, in which the policy waits, and not after them
    unended: float | None = None  # r where the reply at turn h did not end by itself
    kl: float = 0.0  # r -= kl (ln pi_t - ln pi_start) of the reply at turn h
    fixed: bool = False  # the log-ratio is to the policy that training began with (DPO's), not to that before the step
    top_layers: int = 0  # only so many last layers are trained; 0: all weights
    epochs: int = 1  # over the collected pairs
    minibatches: int = 1  # optimizer steps per epoch, each on its share of the pairs
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    bin_length: int = 512  # tokens per packed row: at least both rows of a pair, or with `prompt` what is a row's own
    prompt: int = 0  # columns for what both of a pair are shown, once for both; 0: each row has its own
    microbatch: int = 16  # packed rows per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "Relative":
        return Relative(self, policy, mesh, steps)


class Relative:
    """Implements `Algorithm`: reward, pair, score under pi_t, and some passes of one loss over the same pairs."""

    def __init__(self, config: RelativeConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)
        if min(c.epochs, c.minibatches, c.microbatch) < 1 or min(c.kl, c.prompt, c.judge_steps) < 0:
            raise UserError("a relative method needs epochs, minibatches, microbatch >= 1 and kl, prompt, judge_steps >= 0")
        if c.prompt and not getattr(policy, "branches", False):
            raise UserError(f"{type(policy).__name__} takes no rows with branches: leave `prompt` at 0")
        tx = c.optimizer.build(steps * c.epochs * c.minibatches)
        self._learner = Learner(policy, only_top(tx, policy, c.top_layers) if c.top_layers else tx, self._loss, mesh)
        self._rows = self._learner.share.rows(c.microbatch)
        self._reference = c.fixed or c.kl > 0
        self._judge = c.judge.build(policy, mesh, max(c.judge_steps, 1)) if c.judge else None
        self._steps = 0

    def init(self, key: Array, params: Params) -> TrainState:
        state = self._learner.init(key, params)
        judge = self._judge.init(jax.random.fold_in(key, 1), params) if self._judge else None
        reference = jax.tree.map(jnp.copy, state.params) if self._reference else None
        return dataclasses.replace(state, extra=RelativeBeside(reference=reference, judge=judge))

    def host_state(self) -> Any:
        return {"steps": self._steps}

    def load_host_state(self, state: Any) -> None:
        self._steps = state["steps"]

    def _loss(self, logp: Array, entropy: Array, batch: RelativeBatch) -> tuple[Array, dict[str, Array]]:
        moved, gap = log_ratio(logp, batch), jnp.asarray(batch.gap)
        loss = self._config.objective(moved, gap)
        agreement = 0.5 + 0.5 * jnp.sign(moved * gap)  # 1/2 where neither reply is better, or none has become likelier
        shown = {"log_ratio": jnp.abs(moved), "logp_gap": jnp.abs(logp - batch.anchor_logp), "agreement": agreement}
        return loss, {"pair_loss": loss, "entropy": entropy, **shown}

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        """`epochs` passes over the pairs in `minibatches` optimizer steps each. Without any pair it is a counted skip."""
        c, hosts, step = self._config, runtime.hosts, self._steps
        self._steps += 1
        groups = [c.rewards(group, step) for group in experience] if c.rewards else list(experience)
        pairs, left_out = pairs_of(groups)
        waiting = self._judge is not None and step < c.judge_steps
        state, gaps, judged = self._scored(state, groups, pairs, runtime, waiting)
        apart, count, *others = np.sum(hosts.gather("pairs", [float(np.abs(gaps).sum()), len(pairs), *left_out.values()]), axis=0).tolist()
        metrics = {"pairs": count, "pairs/gap": apart / max(count, 1), **{f"pairs/{name}": n for name, n in zip(left_out, others)}} | judged
        shares = [] if waiting else np.array_split(np.arange(len(pairs)), c.minibatches)
        batches = [self._batches(state, [pairs[i] for i in share], gaps[share], hosts) for share in shares]
        updates: list[dict[str, Array]] = []
        for one in [one for one in batches if one] * c.epochs:
            if not updates and not c.fixed:
                one = [dataclasses.replace(part, fresh=np.ones_like(part.fresh)) for part in one]
            state, found = self._learner.update(state, one)
            # Of the first update: d, which is 0 unless the anchor is fixed, and how far two programs are apart on the same weights.
            first = {} if updates else {"first/log_ratio": found["log_ratio"], "first/logp_gap": found["logp_gap"]}
            updates.append({**found, **first})
        return state, metrics | {"skipped": float(not updates), "device": updates}

    def _scored(
        self, state: TrainState, groups: Sequence[Group], pairs: Sequence[Pair], runtime: Runtime, learning: bool
    ) -> tuple[TrainState, np.ndarray, dict[str, Any]]:
        """r - r' of each pair, by what was earned or by the reward model, which may learn from it first."""
        dialogues, metrics = [dialogue for pair in pairs for dialogue in pair.dialogues], dict[str, Any]()
        if self._judge is None:
            scores = np.array([dialogue.total_reward for dialogue in dialogues])
        else:
            judge = state.extra.judge
            if learning:
                judge, found = self._judge.step(judge, groups, runtime)
                metrics = {"critic": found["device"], "critic/pairs": found["pairs"]}
                state = dataclasses.replace(state, extra=dataclasses.replace(state.extra, judge=judge))
            scores = self._judge.score(judge, dialogues)
        if self._config.unended is not None:
            scores = np.where([ended for pair in pairs for ended in pair.ended], scores, self._config.unended)
        return state, scores[0::2] - scores[1::2], metrics

    def _batches(self, state: TrainState, pairs: Sequence[Pair], gaps: np.ndarray, hosts: Hosts) -> list[RelativeBatch]:
        """The microbatches of some pairs, with what pi_t says of their tokens."""
        c, rows = self._config, [row for pair in pairs for row in pair.rows]
        total = sum(hosts.gather("pairs of a minibatch", len(pairs)))
        layout = settle(hosts, self._learner.share, pack_pairs(rows, c.prompt, c.bin_length, self._rows), self._rows)
        if layout is None:
            return []
        tokens = tokens_of(rows)
        bins, columns = layout.place(tokens.row, tokens.position)
        now = self._read(state.params, layout)
        start = self._read(state.extra.reference, layout) if self._reference else now
        if c.kl:
            gaps = gaps - c.kl * np.bincount(tokens.pair, tokens.sign * (now - start)[bins, columns], minlength=len(pairs))
        return split(_filled(layout, tokens, gaps, start if c.fixed else now, total), self._rows)

    def _read(self, params: Params, layout: Layout) -> np.ndarray:
        """The learner's log-probs of a whole layout, [bins, length], in the microbatches in which it is trained."""
        parts = split(layout.batch(np.zeros((layout.bins, layout.length), np.float32)), self._rows)
        return np.concatenate([self._learner.share.take(one[0]) for one in [self._learner.score(params, part) for part in parts]])


def _filled(layout: Layout, tokens: Tokens, gaps: np.ndarray, anchor: np.ndarray, total: int) -> RelativeBatch:
    """The batch of `total` pairs of all processes, of which this one has those of `tokens`."""

    def packed(values: np.ndarray) -> np.ndarray:
        return layout.scatter(values, tokens.row, tokens.position)

    starts, columns = tokens.starts, layout.place(tokens.row, tokens.position)[1]
    weight = np.zeros(len(tokens.row))
    weight[starts] = 1.0 / total
    return RelativeBatch(
        batch=layout.batch(packed(weight)), ids=packed(columns[starts][tokens.pair]).astype(np.int32), sign=packed(tokens.sign),
        gap=packed(gaps[tokens.pair]), anchor_logp=anchor, fresh=np.zeros(layout.bins, np.float32),
    )  # fmt: skip
