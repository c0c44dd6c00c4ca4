"""The policy-gradient step: slots on the host (rewards to aggregation), and on the device (policy loss, regularisers)."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from agentrl_jax.algorithms.advantages import Advantage, Credit
from agentrl_jax.algorithms.auxiliary import Auxiliary, relabelled
from agentrl_jax.algorithms.crediting import Lesson, Studied, described
from agentrl_jax.algorithms.critics import CriticBatch, CriticConfig, explained_variance
from agentrl_jax.algorithms.filters import Filter, filtered
from agentrl_jax.algorithms.keying import row_of_token
from agentrl_jax.algorithms.losses import kl_k3
from agentrl_jax.algorithms.masks import Mask
from agentrl_jax.algorithms.mismatch import Correction
from agentrl_jax.algorithms.rewards import Reward
from agentrl_jax.algorithms.scoring import Scored, columns_of, corrector
from agentrl_jax.algorithms.surrogates import Surrogate
from agentrl_jax.algorithms.terms import Regulariser
from agentrl_jax.batch import Batch, Layout, pack, pack_branches, split
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pooled import pooled
from agentrl_jax.record import AnyArray, record
from agentrl_jax.rows import Collated, Evidence, Indices, Row, collate, evidence_of, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import place, settle
from agentrl_jax.trajectories import Group


@record
class PolicyGradientBatch:
    """What the policy loss reads beside the batch, all [B, T]."""

    batch: Batch
    ids: Int[AnyArray, "B T"]  # of sequences: tokens of a packed row that share a ratio share an id in [0, T)
    advantage: Float[AnyArray, "B T"]
    likelihood: Float[AnyArray, "B T"]  # coefficient of -logp
    proximal_logp: Float[AnyArray, "B T"]
    ref_logp: Float[AnyArray, "B T"]
    data: dict[str, dict[str, Float[AnyArray, "B T"]]]  # of each regulariser


@record
class Beside:
    """What training keeps on the device beside the policy."""

    reference: Params | None  # where training began
    critic: TrainState | None
    gradient_norm: Float[Array, ""]  # its moving average


@dataclass
class Sharing:
    """Rows that begin with the same prompt keep it once in a bin: `prompt` columns for it, then the own tokens of `rows` rows.

    The update is the same; what it computes is less where prompts are long and a group's rows are of about one length.
    """

    prompt: int = 0  # 0: nothing is shared; what a prompt has more belongs to each row
    rows: int = 8


@runtime_checkable
class Replay(Protocol):
    """Slot B: what takes the place of a group's members before credit is given (`experience_replay`)."""

    def inject(self, groups: Sequence[Group], rng: np.random.Generator) -> list[Group]: ...

    def add(self, groups: Sequence[Group]) -> None: ...


@dataclass
class PolicyGradientConfig:
    """The slots of a policy-gradient method and the shape of its batches. What each slot takes is in docs/pieces.md."""

    advantage: Advantage  # one number per policy-written token; with a critic, its targets too
    aggregation: Callable[[Indices], np.ndarray]  # a token's weight in the loss
    surrogate: Surrogate
    sequence: Callable[[Evidence], np.ndarray] = row_of_token  # what shares a ratio, for losses of whole sequences
    rewards: Reward | None = None
    replay: Replay | None = None
    filter: Filter | None = None
    mask: Mask | None = None
    transforms: tuple[Callable[[Evidence, np.ndarray], np.ndarray], ...] = ()
    mismatch: Correction | None = None  # between sampler and learner; its log-probs are those before the step, if it rescores
    mismatch_mean_one: bool = False  # the correction's weights are divided by their mean; needs `rescore`
    regularisers: dict[str, Regulariser] = field(default_factory=dict)  # by the name that metrics give them
    auxiliaries: tuple[Auxiliary, ...] = ()
    critic: CriticConfig | None = None
    reference: bool = False  # log-probs under the start are computed; regularisers that need them ask for themselves
    rescore: bool = False  # the learner recomputes proximal log-probs; off: the sampler's are the anchor
    epochs: int = 1  # over the collected batch
    minibatches: int = 1  # optimizer steps per epoch, each on its share of the groups
    optimizer: AdamWConfig = field(default_factory=AdamWConfig)
    bin_length: int = 256  # tokens per packed row; at least the longest training row, or with sharing the own tokens of one
    sharing: Sharing = field(default_factory=Sharing)
    microbatch: int = 32  # packed rows, or bins of shared prompts, per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "PolicyGradient":
        return PolicyGradient(self, policy, mesh, steps)


class PolicyGradient:
    """Implements `Algorithm`: reward, filter, collate, score, credit, weigh, pack, update."""

    def __init__(self, config: PolicyGradientConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)  # pieces that remember are this algorithm's own
        if min(c.epochs, c.minibatches, c.microbatch) < 1:
            raise UserError("a policy-gradient method needs epochs, minibatches and microbatch >= 1")
        if c.sharing.prompt < 0 or c.sharing.rows < 1:
            raise UserError(f"prompts are shared by at least 1 row and have at least 0 tokens, not {c.sharing}")
        if c.sharing.prompt and not getattr(policy, "branches", False):
            raise UserError(f"{type(policy).__name__} takes no rows with branches: leave the sharing of prompts off")
        if c.mismatch_mean_one and not (c.mismatch and c.rescore):
            raise UserError("mismatch_mean_one divides the weights of a mismatch correction: set mismatch and rescore too")
        updates = steps * c.epochs * c.minibatches
        self._learner = Learner(policy, c.optimizer.build(updates), self._loss, mesh)
        self._rows = self._learner.share.rows(c.microbatch)
        self._reference = c.reference or any(getattr(term, "reference", False) for term in c.regularisers.values())
        self._correct = corrector(c.mismatch) if c.mismatch and c.rescore else None
        self._spike = jax.jit(_spike)
        if c.critic:
            self._values = c.critic.model(policy)
            self._critic = c.critic.learner(self._values, mesh, updates)
        self._data = {name: sorted(copy.deepcopy(term).data(_NOTHING, *[np.zeros(0)] * 2, 0)) for name, term in c.regularisers.items()}
        self._steps, self._seed = 0, 0

    def init(self, key: Array, params: Params) -> TrainState:
        state, critic = self._learner.init(key, params), None
        self._seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        if c := self._config.critic:
            head, trunk = jax.random.split(jax.random.fold_in(key, 1))
            weights = self._values.init(trunk) if c.fresh else self._values.around(params, head)
            critic = self._critic.init(key, weights)
        reference = jax.tree.map(jnp.copy, state.params) if self._reference else None
        extra = Beside(reference=reference, critic=critic, gradient_norm=place(jnp.float32(0), state.step.sharding))
        return dataclasses.replace(state, extra=extra)

    def described(self) -> tuple[Learner, PolicyGradientBatch]:
        """The learner, and a microbatch of padding alone: what its programs can be lowered for without any group."""
        layout = pack((), self._config.bin_length, self._rows * len(self._learner.share.teams))  # those of all processes
        none = np.zeros(0)
        columns = dict.fromkeys(("weight", "ids", "advantage", "likelihood", "proximal", "reference"), none)
        data = {name: dict.fromkeys(names, none) for name, names in self._data.items()}
        return self._learner, self._filled(layout, (none.astype(np.int64),) * 2, columns, data)

    @property
    def _remembering(self) -> dict[str, Any]:
        """The pieces that have a state, by name."""
        c = self._config
        pieces: dict[str, Any] = {"replay": c.replay, **{f"auxiliary {i}": one for i, one in enumerate(c.auxiliaries)}}
        pieces |= {f"transform {i}": one for i, one in enumerate(c.transforms)} | c.regularisers
        return {name: piece for name, piece in pieces.items() if hasattr(piece, "state")}

    def host_state(self) -> Any:
        return {"steps": self._steps, "pieces": {name: piece.state() for name, piece in self._remembering.items()}}

    def load_host_state(self, state: Any) -> None:
        self._steps = state["steps"]
        for name, piece in self._remembering.items():
            piece.load(state["pieces"][name])

    def _loss(self, logp: Array, entropy: Array, batch: PolicyGradientBatch) -> tuple[Array, dict[str, Array]]:
        c, mask = self._config, jnp.asarray(batch.batch.action_mask)
        proximal, sampler = jnp.asarray(batch.proximal_logp), jnp.asarray(batch.batch.sampler_logp)
        loss = c.surrogate(logp, proximal, jnp.asarray(batch.advantage), mask, jnp.asarray(batch.ids))
        metrics = {"entropy": entropy}
        if c.mismatch and not c.rescore:
            trust, keep = c.mismatch(logp, sampler, mask, jnp.asarray(batch.ids))
            loss = jnp.where(keep, trust * loss, 0.0)
            metrics |= {"off_policy/trust": trust, "off_policy/rejected": 1.0 - keep.astype(jnp.float32)}
        metrics["policy_loss"] = loss
        loss = loss - batch.likelihood * logp
        for name, term in c.regularisers.items():
            metrics[f"loss/{name}"] = term.loss(logp, entropy, proximal, jnp.asarray(batch.ref_logp), batch.data[name])
            loss = loss + metrics[f"loss/{name}"]
        if self._reference:
            metrics["ref_kl"] = kl_k3(logp, batch.ref_logp)
        moved = logp - proximal
        low, high = getattr(c.surrogate, "low", 0.2), getattr(c.surrogate, "high", 0.2)
        clipped = {
            "ratio_outside": jnp.abs(moved) > 0.2,
            "clipped/high": (batch.advantage > 0) & (moved > np.log1p(high)),
            "clipped/low": (batch.advantage < 0) & (moved < np.log1p(-min(low, 1 - 1e-9))),
        }
        metrics |= {name: outside.astype(jnp.float32) for name, outside in clipped.items()}
        metrics |= {"off_policy/kl": kl_k3(logp, sampler), "off_policy/logp_gap": jnp.abs(logp - sampler)}
        return loss, metrics

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        """`epochs` passes over the groups in `minibatches` optimizer steps each. A batch without any signal is a counted skip."""
        c, hosts, step = self._config, runtime.hosts, self._steps
        self._steps += 1
        rng = np.random.default_rng([self._seed, step, hosts.index])
        fresh, for_others = self._dealt([c.rewards(group, step) for group in experience] if c.rewards else list(experience))
        placed = self._curated(fresh, hosts, rng)
        main, metrics = self._judged(state, placed, hosts, step)
        metrics["groups_kept"] = sum(hosts.gather("groups kept", len(placed))) / max(sum(hosts.gather("groups", len(fresh))), 1)
        courses = [main]
        for auxiliary, own in zip(c.auxiliaries, for_others):
            drawn = auxiliary.draw(own, rng)
            courses.append(self._taught(state, drawn, hosts, lambda evidence, a=auxiliary: a.lesson(evidence, step)))
        state, more = self._learned(state, courses, hosts, warming=c.critic is not None and step < c.critic.warmup)
        trained = [group for _, group in placed]
        for auxiliary in c.auxiliaries:
            auxiliary.add(relabelled(trained, main.columns["proximal"]) if c.rescore else trained)
        if c.replay:
            c.replay.add(fresh)
        return state, metrics | more

    def _dealt(self, groups: list[Group]) -> tuple[list[Group], list[list[Group]]]:
        """What is for the policy gradient, and what each auxiliary sets aside for itself."""
        aside = []
        for auxiliary in self._config.auxiliaries:
            groups, own = auxiliary.split(groups)
            aside.append(own)
        return groups, aside

    def _curated(self, groups: Sequence[Group], hosts: Hosts, rng: np.random.Generator) -> list[tuple[int, Group]]:
        """Replay, then filters; each group with its place among those of all processes."""
        c, places = self._config, range(hosts.index, len(groups) * hosts.count, hosts.count)
        placed = list(zip(places, groups))
        if c.replay:
            placed = [(place, one) for place, group in placed for one in c.replay.inject([group], rng)]
        return filtered(c.filter, hosts, placed) if c.filter else placed

    def _judged(self, state: TrainState, placed: Sequence[tuple[int, Group]], hosts: Hosts, step: int) -> tuple[Studied, dict[str, Any]]:
        """Score the groups, and give credit for what was written in them."""
        groups = [group for _, group in placed]
        studied = self._taught(state, groups, hosts, lambda evidence: self._credited(evidence, step), [place for place, _ in placed])
        evidence, lesson = studied.pool.indices, studied.lesson
        identity = min(hosts.gather("tokens/identity", token_identity(groups, Collated(studied.rows, studied.indices))))
        owners = evidence.trajectory_group[evidence.token_trajectory]
        metrics: dict[str, Any] = {"tokens/identity": identity, "tokens": float(len(evidence.token_row)), **described(evidence, lesson)}
        signal = len(np.unique(owners[(lesson.advantage != 0) & lesson.trained]))
        metrics["groups_with_signal"] = signal / max(studied.pool.groups, 1)
        versions = Collated(studied.rows, studied.indices).tokens("version")
        stale = hosts.gather("staleness", [float((step - versions[versions >= 0]).sum()), int((versions >= 0).sum())])
        metrics["staleness"] = sum(total for total, _ in stale) / max(sum(count for _, count in stale), 1)
        if lesson.target is not None and evidence.token_value is not None:
            metrics["critic/explained_variance"] = explained_variance(evidence.token_value, lesson.target)
        return studied, metrics

    def _taught(
        self,
        state: TrainState,
        groups: Sequence[Group],
        hosts: Hosts,
        teach: Callable[[Evidence], Lesson],
        places: Sequence[int] | None = None,
    ) -> Studied:
        """The groups' rows, what models say of their tokens, and the lesson that `teach` draws from all processes' evidence."""
        c, whole = self._config, collate(groups)
        own = self._scored(state, whole, evidence_of(groups, whole), hosts)
        pool = pooled(hosts, own, len(groups), places)
        lesson, zeros = teach(pool.indices), np.zeros(len(own.token_row))
        first = places is not None  # the groups of the policy gradient; others keep the log-probs that were recorded
        columns = {
            "advantage": lesson.advantage[pool.mine],
            "likelihood": zeros if lesson.likelihood is None else lesson.likelihood[pool.mine],
            "sequence": c.sequence(pool.indices)[pool.mine],
            "proximal": own.token_logp if c.rescore and first and own.token_logp is not None else own.token_sampler_logp,
            "reference": zeros if own.token_ref_logp is None else own.token_ref_logp,
            "value": zeros if own.token_value is None else own.token_value,
            "target": zeros if lesson.target is None else lesson.target[pool.mine],
        }
        return Studied(whole.rows, whole.indices, pool, lesson, columns)

    def _scored(self, state: TrainState, whole: Collated, own: Evidence, hosts: Hosts) -> Evidence:
        """The evidence with what the learner, the reference and the critic say of each token."""
        c, found = self._config, dict[str, np.ndarray]()
        if not (c.rescore or self._reference or c.critic):
            return own
        scored = Scored(settle(hosts, self._learner.share, self._pack(whole.rows), self._rows), whole.indices, self._rows)
        if c.rescore:
            found["token_logp"], found["token_entropy"] = scored.read(self._learner, state.params)
        if self._reference:
            found["token_ref_logp"] = scored.read(self._learner, state.extra.reference)[0]
        if c.critic:
            found["token_value"] = scored.read(self._critic, state.extra.critic.params)[0]
        if self._correct:
            key = c.sequence(own)
            found["token_trust"], found["token_kept"] = scored.corrected(self._correct, found["token_logp"], key)
        return dataclasses.replace(own, **found)

    def _credited(self, evidence: Evidence, step: int) -> Lesson:
        """Masks, advantages, their transforms, and what regularisers need; with the weights of the mismatch in the advantage."""
        c, count = self._config, len(evidence.token_row)
        credit = c.advantage(evidence)
        advantage, target = (credit.advantage, credit.target) if isinstance(credit, Credit) else (credit, None)
        if (target is None) != (c.critic is None):
            raise UserError("an advantage with a critic needs a critic in the config, and a critic an advantage that trains it")
        for transform in c.transforms:
            advantage = transform(evidence, np.asarray(advantage, np.float64))
        trained = np.ones(count, bool) if c.mask is None else c.mask(evidence)
        if evidence.token_kept is not None:
            trained = trained & evidence.token_kept
        advantage = np.asarray(advantage, np.float64)
        for numbers in (advantage, *(() if target is None else (target,))):
            if numbers.shape != (count,) or not np.isfinite(numbers).all():
                raise UserError("the advantage must be one finite number per policy-written token")
        if evidence.token_trust is not None:  # every policy loss is proportional to the advantage's size
            mean = float(evidence.token_trust[trained].mean()) if c.mismatch_mean_one and trained.any() else 1.0
            advantage = advantage * evidence.token_trust / (mean if mean > 0 else 1.0)
        lesson = Lesson(advantage, trained, c.aggregation, target=target)
        weight = lesson.weight(evidence, slice(0, count))
        data = {name: term.data(evidence, advantage, weight, step) for name, term in c.regularisers.items()}
        return dataclasses.replace(lesson, data=data)

    def _learned(self, state: TrainState, courses: Sequence[Studied], hosts: Hosts, warming: bool) -> tuple[TrainState, dict[str, Any]]:
        """All optimizer steps. While the critic is `warming` up the policy stays as it is."""
        c, policies, values, skipped = self._config, [], [], 0
        for _ in range(c.epochs):
            for i in range(c.minibatches):
                shares = [np.array_split(np.arange(course.pool.groups), c.minibatches)[i] for course in courses]
                if c.critic:
                    critic, found = self._critic_step(state.extra.critic, courses[0], shares[0], hosts)
                    state = dataclasses.replace(state, extra=dataclasses.replace(state.extra, critic=critic))
                    values += found
                batches = (
                    [] if warming else [one for course, share in zip(courses, shares) for one in self._microbatches(course, share, hosts)]
                )
                skipped += not batches
                if batches:
                    state, on_device = self._learner.update(state, batches)
                    average, spike = self._spike(state.extra.gradient_norm, on_device["gradient_norm"])
                    state = dataclasses.replace(state, extra=dataclasses.replace(state.extra, gradient_norm=average))
                    # Later updates are off-policy by design: only the first tells how sampler and learner agree.
                    kept = {name: value for name, value in on_device.items() if not (policies and name.startswith("off_policy/"))}
                    policies.append(kept | {"gradient_spike": spike})
        found = {"skipped": float(skipped), "device": policies}
        return state, found | ({"critic": values} if c.critic else {})

    def _microbatches(self, course: Studied, share: np.ndarray, hosts: Hosts) -> list[PolicyGradientBatch]:
        """Packed microbatches of equal shape. Rows whose every loss is exactly 0 are left out; their weights still count."""
        where, weight = course.part(share)
        mine = course.pool.mine
        columns = {name: values[where] for name, values in course.columns.items()}
        data = {
            name: {key: course.lesson.data[name][key][mine][where] if name in course.lesson.data else np.zeros(len(weight)) for key in keys}
            for name, keys in self._data.items()
        }
        matters = np.logical_or.reduce(
            [columns["advantage"] != 0, columns["likelihood"] != 0, *(x != 0 for one in data.values() for x in one.values())]
        )
        row = course.indices.token_row[where]
        useful = np.unique(row[matters & (weight != 0)])
        layout = settle(hosts, self._learner.share, self._pack([course.rows[r] for r in useful]), self._rows)
        if layout is None:
            return []
        keep = np.isin(row, useful)
        at = np.searchsorted(useful, row[keep]), course.indices.token_position[where][keep]
        columns = {name: values[keep] for name, values in (columns | {"weight": weight}).items()}
        columns["ids"] = columns_of(layout, *at, columns["sequence"])
        data = {name: {key: values[keep] for key, values in one.items()} for name, one in data.items()}
        return split(self._filled(layout, at, columns, data), self._rows)

    def _filled(
        self,
        layout: Layout,
        at: tuple[np.ndarray, np.ndarray],
        columns: Mapping[str, np.ndarray],
        data: Mapping[str, Mapping[str, np.ndarray]],
    ) -> PolicyGradientBatch:
        def packed(values: np.ndarray) -> np.ndarray:
            return layout.scatter(values, *at)

        return PolicyGradientBatch(
            batch=layout.batch(packed(columns["weight"])), ids=packed(columns["ids"]).astype(np.int32),
            advantage=packed(columns["advantage"]), likelihood=packed(columns["likelihood"]), proximal_logp=packed(columns["proximal"]),
            ref_logp=packed(columns["reference"]), data={name: {key: packed(x) for key, x in one.items()} for name, one in data.items()},
        )  # fmt: skip

    def _critic_step(
        self, critic: TrainState, course: Studied, share: np.ndarray, hosts: Hosts
    ) -> tuple[TrainState, list[dict[str, Array]]]:
        """One optimizer step of the critic on all tokens of some groups, masked ones too."""
        assert self._config.critic
        part, tokens = course.pool.part(share)
        weight = self._config.critic.aggregation(part)[course.pool.mine[tokens]]
        where, _ = course.part(share)
        row = course.indices.token_row[where]
        rows = np.unique(row)
        layout = settle(hosts, self._learner.share, self._pack([course.rows[r] for r in rows]), self._rows)
        if layout is None:
            return critic, []
        at = np.searchsorted(rows, row), course.indices.token_position[where]
        target, value = (layout.scatter(course.columns[name][where], *at) for name in ("target", "value"))
        batch = CriticBatch(batch=layout.batch(layout.scatter(weight, *at)), target=target, proximal_value=value)
        critic, found = self._critic.update(critic, split(batch, self._rows))
        return critic, [found]

    def _pack(self, rows: list[Row]) -> Layout:
        c = self._config
        if not c.sharing.prompt:
            return pack(rows, c.bin_length, self._rows)
        return pack_branches(rows, c.sharing.prompt, c.bin_length, c.sharing.rows, self._rows)


def _spike(average: Array, norm: Array) -> tuple[Array, Array]:
    """The moving average with a gradient's norm in it, and the norm over what the average was; 1 for the first."""
    first = average == 0
    return jnp.where(first, norm, 0.9 * average + 0.1 * norm), jnp.where(first, 1.0, norm / jnp.where(first, 1.0, average))


_EMPTY = evidence_of((), collate(()))
_NOTHING = dataclasses.replace(_EMPTY, **{name: np.zeros(0) for name in ("token_logp", "token_ref_logp", "token_value", "token_entropy")})
