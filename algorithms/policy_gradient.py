"""The policy-gradient step: slots on the host (rewards to aggregation), and on the device (policy loss, regularisers)."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from agentrl_jax.algorithms.advantages import Advantage, Credit
from agentrl_jax.algorithms.auxiliary import Auxiliary, relabelled
from agentrl_jax.algorithms.crediting import Lesson, Studied, described
from agentrl_jax.algorithms.critics import CriticConfig, explained_variance
from agentrl_jax.algorithms.filters import Filter, filtered
from agentrl_jax.algorithms.keying import row_of_token
from agentrl_jax.algorithms.masks import Mask
from agentrl_jax.algorithms.mismatch import Correction
from agentrl_jax.algorithms.packing import Packer, Sharing
from agentrl_jax.algorithms.policy_loss import PolicyGradientBatch, PolicyLoss
from agentrl_jax.algorithms.probing import GoldProbe
from agentrl_jax.algorithms.rewards import Reward
from agentrl_jax.algorithms.scoring import corrector
from agentrl_jax.algorithms.surrogates import Surrogate
from agentrl_jax.algorithms.terms import Regulariser
from agentrl_jax.errors import UserError
from agentrl_jax.hosts import Hosts
from agentrl_jax.learner import Learner, TrainState
from agentrl_jax.optimizer import AdamWConfig
from agentrl_jax.policy import Params, Policy
from agentrl_jax.pooled import pooled
from agentrl_jax.record import record
from agentrl_jax.rows import Collated, Evidence, Indices, Row, collate, evidence_of, token_identity
from agentrl_jax.runtime import Runtime
from agentrl_jax.shares import place
from agentrl_jax.trajectories import Group


@record
class Beside:
    """What training keeps on the device beside the policy."""

    reference: Params | None  # where training began
    critic: TrainState | None
    gradient_norm: Float[Array, ""]  # its moving average


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
    probe: GoldProbe | None = None  # what rewards of information gain need
    rewards: Reward | None = None
    admit: Filter | None = None  # before replay
    replay: Replay | None = None
    filter: Filter | None = None  # after it
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
    """Implements `Algorithm`: probe, reward, replay, filter, collate, score, credit, pack, update."""

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
        self._reference = c.reference or any(getattr(term, "reference", False) for term in c.regularisers.values())
        before, now = (c.mismatch, None) if c.rescore else (None, c.mismatch)
        self._correct = corrector(before) if before else None
        loss = PolicyLoss(c.surrogate, c.regularisers, now, self._reference)
        self._learner = Learner(policy, c.optimizer.build(updates), loss, mesh)
        self._spike = jax.jit(_spike)
        if c.critic:
            self._values = c.critic.model(policy)
            self._critic = c.critic.learner(self._values, mesh, updates)
        names = {name: sorted(copy.deepcopy(term).data(_NOTHING, np.zeros(0), np.zeros(0), 0)) for name, term in c.regularisers.items()}
        share = self._learner.share
        self._packer = Packer(share, c.bin_length, c.sharing, share.rows(c.microbatch), names)
        self._steps, self._seed, self._hosts = 0, 0, Hosts()

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
        return self._learner, self._packer.padding()

    @property
    def _remembering(self) -> dict[str, Any]:
        """The pieces that have a state, by name."""
        c = self._config
        pieces: dict[str, Any] = {"replay": c.replay, **{f"auxiliary {i}": one for i, one in enumerate(c.auxiliaries)}}
        pieces |= {f"transform {i}": one for i, one in enumerate(c.transforms)} | c.regularisers
        return {name: piece for name, piece in pieces.items() if hasattr(piece, "state")}

    def host_state(self) -> Any:
        """The step, and what pieces remember in each process."""
        own = {name: piece.state() for name, piece in self._remembering.items()}
        return {"steps": self._steps, "pieces": self._hosts.gather("what pieces remember", own) if own else []}

    def load_host_state(self, state: Any) -> None:
        """A process that is new takes what the last one of before remembered."""
        self._steps = state["steps"]
        if state["pieces"]:
            own = state["pieces"][min(jax.process_index(), len(state["pieces"]) - 1)]
            for name, piece in self._remembering.items():
                piece.load(own[name])

    def step(self, state: TrainState, experience: Sequence[Group], runtime: Runtime) -> tuple[TrainState, dict[str, Any]]:
        """`epochs` passes over the groups in `minibatches` optimizer steps each. A batch without any signal is a counted skip."""
        c, hosts, step = self._config, runtime.hosts, self._steps
        self._steps, self._hosts = step + 1, hosts
        rng = np.random.default_rng([self._seed, step, hosts.index])
        fresh, for_others = self._dealt(list(experience))
        if c.probe:
            fresh = c.probe(fresh, runtime.agents[c.probe.agent].renderer, functools.partial(self._judge, state, hosts))
        if c.rewards:
            fresh = [c.rewards(group, step) for group in fresh]
        placed = self._curated(fresh, hosts, rng)
        main, metrics = self._judged(state, placed, hosts, step)
        kept, of = np.sum(hosts.gather("groups kept", [len(placed), len(fresh)]), axis=0)
        metrics["groups_kept"] = float(kept / max(of, 1))
        courses = [main]
        for auxiliary, own in zip(c.auxiliaries, for_others):
            drawn = auxiliary.draw(own, rng)
            courses.append(self._taught(state, drawn, hosts, lambda evidence, a=auxiliary: a.lesson(evidence, step)))
        state, more = self._learned(state, courses, hosts, warming=c.critic is not None and step < c.critic.warmup)
        if c.auxiliaries:
            trained = [group for _, group in placed]
            trained = relabelled(trained, main.columns["proximal"]) if c.rescore else trained
            for auxiliary in c.auxiliaries:
                auxiliary.add(trained)
        if c.replay is not None:
            c.replay.add(fresh)
        return state, metrics | more

    def _judge(self, state: TrainState, hosts: Hosts, rows: list[Row], indices: Indices) -> np.ndarray:
        """The policy's log-prob of some tokens of some rows."""
        return self._packer.scored(rows, indices, hosts).read(self._learner, state.params)[0]

    def _dealt(self, groups: list[Group]) -> tuple[list[Group], list[list[Group]]]:
        """What is for the policy gradient, and what each auxiliary sets aside for itself."""
        aside = []
        for auxiliary in self._config.auxiliaries:
            groups, own = auxiliary.split(groups)
            aside.append(own)
        return groups, aside

    def _curated(self, groups: Sequence[Group], hosts: Hosts, rng: np.random.Generator) -> list[tuple[int, Group]]:
        """What is admitted, replay, filters; each group with its place among those of all processes."""
        c, places = self._config, range(hosts.index, len(groups) * hosts.count, hosts.count)
        placed = list(zip(places, groups))
        if c.admit:
            placed = filtered(c.admit, hosts, placed)
        if c.replay is not None:
            placed = [(place, one) for place, group in placed for one in c.replay.inject([group], rng)]
        return filtered(c.filter, hosts, placed) if c.filter else placed

    def _judged(self, state: TrainState, placed: Sequence[tuple[int, Group]], hosts: Hosts, step: int) -> tuple[Studied, dict[str, Any]]:
        """Score the groups, and give credit for what was written in them."""
        groups = [group for _, group in placed]
        studied = self._taught(state, groups, hosts, lambda evidence: self._credited(evidence, step), [place for place, _ in placed])
        evidence, lesson = studied.pool.indices, studied.lesson
        own = Collated(studied.rows, studied.indices)
        identity = min(hosts.gather("tokens/identity", token_identity(groups, own)))
        owners = evidence.trajectory_group[evidence.token_trajectory]
        metrics: dict[str, Any] = {"tokens/identity": identity, "tokens": float(len(evidence.token_row)), **described(evidence, lesson)}
        signal = len(np.unique(owners[(lesson.advantage != 0) & lesson.trained]))
        metrics["groups_with_signal"] = signal / max(studied.pool.groups, 1)
        versions = own.tokens("version")
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
        scored = self._packer.scored(whole.rows, whole.indices, hosts)
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
                    batches = self._packer.critic(courses[0], shares[0], c.critic, hosts)
                    if batches:
                        critic, found = self._critic.update(state.extra.critic, batches)
                        state, values = beside(state, critic=critic), [*values, found]
                pairs = [] if warming else zip(courses, shares)
                batches = [one for course, share in pairs for one in self._packer.policy(course, share, hosts)]
                skipped += not batches
                if batches:
                    state, on_device = self._learner.update(state, batches)
                    average, spike = self._spike(state.extra.gradient_norm, on_device["gradient_norm"])
                    state = beside(state, gradient_norm=average)
                    # Later updates are off-policy by design: only the first tells how sampler and learner agree.
                    kept = {name: value for name, value in on_device.items() if not (policies and name.startswith("off_policy/"))}
                    policies.append(kept | {"gradient_spike": spike})
        found = {"skipped": float(skipped), "device": policies}
        return state, found | ({"critic": values} if c.critic else {})


def beside(state: TrainState, **changes: Any) -> TrainState:
    """The state with other things beside the policy."""
    return dataclasses.replace(state, extra=dataclasses.replace(state.extra, **changes))


def _spike(average: Array, norm: Array) -> tuple[Array, Array]:
    """The moving average with a gradient's norm in it, and the norm over what the average was; 1 for the first."""
    first = average == 0
    return jnp.where(first, norm, 0.9 * average + 0.1 * norm), jnp.where(first, 1.0, norm / jnp.where(first, 1.0, average))


_EMPTY = evidence_of((), collate(()))
_NOTHING = dataclasses.replace(_EMPTY, **{name: np.zeros(0) for name in ("token_logp", "token_ref_logp", "token_value", "token_entropy")})
