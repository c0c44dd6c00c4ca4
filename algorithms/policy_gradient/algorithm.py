"""The policy-gradient trainer: slots on the host (rewards to aggregation) and on the device (policy
loss, regularizers).
"""

import copy
import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.experience.reward_metrics import trained_reward_metrics
from agentrl_jax.algorithms.experience.stateful import Stateful
from agentrl_jax.algorithms.policy_gradient import aux_state, credit_invariants
from agentrl_jax.algorithms.policy_gradient.aux_state import AuxState, with_aux
from agentrl_jax.algorithms.policy_gradient.auxiliary import replace_group_logp
from agentrl_jax.algorithms.policy_gradient.config import PolicyGradientSlots, check_config
from agentrl_jax.algorithms.policy_gradient.credited_batch import CreditedBatch, batch_metrics
from agentrl_jax.algorithms.policy_gradient.crediting import Crediting
from agentrl_jax.algorithms.policy_gradient.device_loss import PolicyGradientBatch, PolicyLoss
from agentrl_jax.algorithms.policy_gradient.group_selection import (
    filter_and_replay,
    split_auxiliary,
)
from agentrl_jax.algorithms.policy_gradient.microbatches import MicrobatchPacker
from agentrl_jax.algorithms.policy_gradient.step_record import StepRecord
from agentrl_jax.algorithms.policy_gradient.trust_region import TrustRegion
from agentrl_jax.distributed.process_group import ProcessGroup
from agentrl_jax.learner.batch_invariants import trained_tokens
from agentrl_jax.learner.data_shards import put_sharded
from agentrl_jax.learner.image_rows import make_image_packer
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.logp_bound import logp_bound
from agentrl_jax.learner.sequences import TokenIndex, TrainingSequence
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.trajectory_record import TrajectoryTraining


@dataclass
class PolicyGradientConfig(PolicyGradientSlots):
    """A policy-gradient method: its slots, and the algorithm that they make."""

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "PolicyGradient":
        return PolicyGradient(self, policy, mesh, steps)


class PolicyGradient(Algorithm):
    """Implements `Algorithm`: probe, reward, replay, filter, collate, score, credit, pack,
    update.
    """

    def __init__(self, config: PolicyGradientSlots, policy: Policy, mesh: Mesh, steps: int) -> None:
        check_config(config, policy)
        self._config = c = copy.deepcopy(config)  # stateful components belong to this algorithm
        self._policy = policy
        updates = steps * c.epochs * c.minibatches
        self._needs_reference = c.reference or any(
            regularizer.needs_reference for regularizer in c.regularizers.values()
        )
        current_mismatch = None if c.rescore else c.mismatch
        self._proceed = TrustRegion(c.max_kl).contains if np.isfinite(c.max_kl) else None
        bounded, referenced = self._proceed is not None, self._needs_reference
        loss = PolicyLoss(c.surrogate, c.regularizers, current_mismatch, referenced, bounded)
        self._learner = Learner(policy, c.optimizer.build(updates), loss, mesh)
        self._gradient_spike = jax.jit(aux_state.update_gradient_spike)
        self._critic_learner: Learner | None = None
        if c.critic:
            self._value_model = c.critic.build_model(policy)
            self._critic_learner = c.critic.build_learner(self._value_model, mesh, updates)
        shard = self._learner.data_shard
        self._packer = MicrobatchPacker(
            shard,
            c.bin_length,
            c.prompt_sharing,
            shard.num_local_rows(c.microbatch),
            make_image_packer(c.images, policy, only_policy=c.critic is None),
        )
        self._crediting = Crediting(
            c, self._packer, self._learner, self._critic_learner, self._needs_reference
        )
        self._step, self._seed, self._process_group = 0, 0, ProcessGroup()
        self._step_record: StepRecord | None = None
        self._reference_weights = credit_invariants.FrozenWeights()

    def init(self, key: Array, params: Params) -> TrainState:
        state, critic = self._learner.init(key, params), None
        self._seed = int(np.asarray(jax.random.key_data(key)).ravel()[-1])
        if (critic_config := self._config.critic) and self._critic_learner:
            head_key, trunk_key = jax.random.split(jax.random.fold_in(key, 1))
            weights = (
                self._value_model.init(trunk_key)
                if critic_config.fresh_trunk
                else self._value_model.init_from_policy(params, head_key)
            )
            critic = self._critic_learner.init(key, weights)
        reference = jax.tree.map(jnp.copy, state.params) if self._needs_reference else None
        gradient_norm = put_sharded(jnp.float32(0), state.step.sharding)
        extra = AuxState(reference=reference, critic=critic, gradient_norm=gradient_norm)
        return dataclasses.replace(state, extra=extra)

    def learner_and_padding_batch(self) -> tuple[Learner, PolicyGradientBatch]:
        """The learner and a microbatch of padding alone, to lower its programs without any
        group.
        """
        return self._learner, self._packer.padding_microbatch(
            self._crediting.empty_regularizer_data
        )

    @property
    def _stateful_components(self) -> dict[str, Stateful]:
        """The components that a checkpoint stores, by name."""
        c = self._config
        components: dict[str, Any] = {
            "replay": c.replay,
            **{f"auxiliary {i}": auxiliary for i, auxiliary in enumerate(c.auxiliaries)},
            **{f"transform {i}": transform for i, transform in enumerate(c.transforms)},
            **c.regularizers,
        }
        return {name: x for name, x in components.items() if isinstance(x, Stateful)}

    def host_state(self) -> Any:
        """The step, and the states of components in each process."""
        states = {name: x.state() for name, x in self._stateful_components.items()}
        return {
            "steps": self._step,
            "pieces": self._process_group.all_gather("component states", states) if states else [],
        }

    def load_host_state(self, state: Any) -> None:
        """A process that did not exist when the checkpoint was written takes the last one's."""
        self._step = state["steps"]
        if state["pieces"]:
            states = state["pieces"][min(jax.process_index(), len(state["pieces"]) - 1)]
            for name, component in self._stateful_components.items():
                component.load(states[name])

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        """`epochs` passes over the groups in `minibatches` optimizer steps each. A batch without
        any signal is a counted skip.
        """
        c, process_group, step = self._config, runtime.process_group, self._step
        self._step, self._process_group = step + 1, process_group
        if self._packer.images is not None:
            self._packer.images.load(state.params)
        rng = np.random.default_rng([self._seed, step, process_group.index])
        rollouts, reserved = split_auxiliary(c.auxiliaries, list(experience))
        if c.probe:
            renderer = runtime.agents[c.probe.agent].renderer
            token_logp_fn = functools.partial(self.token_logp, state, process_group)
            rollouts = c.probe(rollouts, renderer, token_logp_fn)
        if c.rewards:
            rollouts = [c.rewards(group, step) for group in rollouts]
        indexed_groups = filter_and_replay(c, rollouts, process_group, rng)
        main = self._crediting.credit_rollouts(state, indexed_groups, process_group, step)
        trained = [group for _, group in indexed_groups]
        self._step_record = StepRecord(rollouts, trained, main, c.minibatches)
        invariants = runtime.invariants
        invariants.check(trained_tokens, trained, main.collated, main.recorded.tokens)
        metrics = batch_metrics(main, process_group, step)
        is_fresh = credit_invariants.sampled_by(state.params, trained, runtime)
        is_fresh &= not c.auxiliaries
        counts = process_group.all_gather("groups kept", [len(trained), len(rollouts), is_fresh])
        num_kept, num_rollouts, num_fresh = np.sum(counts, axis=0)
        if c.rewards:
            metrics |= trained_reward_metrics(rollouts, process_group)
        metrics["groups_kept"] = float(num_kept / max(num_rollouts, 1))
        self._reference_weights.check(state.extra.reference, runtime.invariants)
        credited_batches = [main]
        for auxiliary, own_groups in zip(c.auxiliaries, reserved):
            groups = auxiliary.groups_for_step(own_groups, rng)
            credited = self._crediting.credit_auxiliary(
                state, auxiliary, groups, process_group, step
            )
            invariants.check(trained_tokens, groups, credited.collated, credited.recorded.tokens)
            credited_batches.append(credited)
        critic_warmup = c.critic is not None and step < c.critic.warmup_steps
        state, update_metrics = self._optimize(state, credited_batches, runtime, critic_warmup)
        if num_fresh == process_group.count and (updates := update_metrics["device"]):
            gap, tokens = updates[0]["off_policy/logp_gap"], updates[0]["tokens"]
            bound = max(
                logp_bound(self._policy), credit_invariants.engine_bound(state.params, runtime)
            )
            invariants.defer(credit_invariants.sampler_logp, gap, tokens, bound)
        if c.auxiliaries and c.rescore:
            trained = replace_group_logp(trained, main.token_columns.proximal_logp)
        for auxiliary in c.auxiliaries:
            auxiliary.add(trained)
        if c.replay is not None:
            c.replay.add(rollouts)
        return state, metrics | update_metrics

    def training_of(
        self, trajectories: Sequence[Trajectory]
    ) -> Sequence[TrajectoryTraining | None]:
        record = self._step_record
        return record.of(trajectories) if record else super().training_of(trajectories)

    def token_logp(
        self,
        state: TrainState,
        process_group: ProcessGroup,
        sequences: list[TrainingSequence],
        indices: TokenIndex,
    ) -> np.ndarray:
        """The policy's log-probs of the tokens `indices` of some sequences, [N]."""
        scoring = self._packer.scoring_pass(sequences, indices, process_group)
        return scoring.token_scores(self._learner, state.params)[0]

    def _optimize(
        self,
        state: TrainState,
        credited_batches: Sequence[CreditedBatch],
        runtime: Runtime,
        critic_warmup: bool,
    ) -> tuple[TrainState, dict[str, Any]]:
        """All optimizer steps. During the critic's warm-up the policy does not change, nor once it
        has left its trust region.
        """
        c, process_group, invariants = self._config, runtime.process_group, runtime.invariants
        policy_metrics, critic_metrics, skipped, left_out = [], [], 0, 0
        for _ in range(c.epochs):
            epoch = credit_invariants.EpochTokens(credited_batches)
            for i in range(c.minibatches):
                groups_of = [
                    np.array_split(np.arange(batch.global_groups.num_groups), c.minibatches)[i]
                    for batch in credited_batches
                ]
                if c.critic and self._critic_learner:
                    batches = self._packer.critic_microbatches(
                        credited_batches[0], groups_of[0], c.critic, process_group, invariants
                    )
                    if batches:
                        critic, metrics = self._critic_learner.update(state.extra.critic, batches)
                        state = with_aux(state, critic=critic)
                        critic_metrics.append(metrics)
                if left_out:
                    left_out += 1
                    continue
                batches = (
                    [
                        microbatch
                        for credited, groups in zip(credited_batches, groups_of)
                        for microbatch in self._packer.policy_microbatches(
                            credited, groups, process_group, invariants, epoch
                        )
                    ]
                    if not critic_warmup
                    else []
                )
                skipped += not batches
                if batches:
                    state, metrics = self._update_policy(state, batches)
                    if metrics is None:
                        left_out = 1
                        continue
                    if process_group.count == 1:  # the metrics are those of all processes
                        expected = credit_invariants.num_packed(batches)
                        invariants.defer(
                            credit_invariants.updated_tokens, metrics["tokens"], expected
                        )
                    # Later updates are off-policy by design: only the first one measures how well
                    # sampler and learner agree.
                    if policy_metrics:
                        metrics = {k: x for k, x in metrics.items() if "off_policy/" not in k}
                    policy_metrics.append(metrics)
            if not critic_warmup and not left_out:
                invariants.check(epoch.check)
        metrics = {"skipped": float(skipped), "device": policy_metrics}
        if self._proceed is not None:
            metrics["updates_left_out"] = float(left_out)
        return state, metrics | ({"critic": critic_metrics} if c.critic else {})

    def _update_policy(
        self, state: TrainState, batches: Sequence[PolicyGradientBatch]
    ) -> tuple[TrainState, dict[str, Any] | None]:
        """One optimizer step of the policy; None: none, since it has left its trust region."""
        state, metrics = self._learner.update(state, batches, self._proceed)
        if "gradient_norm" not in metrics:
            return state, None
        average, spike = self._gradient_spike(state.extra.gradient_norm, metrics["gradient_norm"])
        return with_aux(state, gradient_norm=average), metrics | {"gradient_spike": spike}
