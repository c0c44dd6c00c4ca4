"""Learning from the difference of two rewards: REFUEL, REBEL and DPO on pairs of replies to one
prompt, without a critic.
"""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from agentrl_jax.algorithms.experience.rewards import RewardTransform
from agentrl_jax.algorithms.losses.pairwise import PairwiseLoss
from agentrl_jax.algorithms.pairwise.pair_record import PairedTokens, PairRecord
from agentrl_jax.algorithms.pairwise.pairs import (
    Pair,
    pack_pairs,
    preference_pairs_of,
    reply_tokens,
)
from agentrl_jax.algorithms.pairwise.pairwise_batch import (
    PairwiseBatch,
    log_ratio,
    make_pairwise_batch,
)
from agentrl_jax.algorithms.pairwise.train_last_layers import freeze_all_but_last
from agentrl_jax.errors import UserError
from agentrl_jax.learner.batch_invariants import packed_rows, trained_replies
from agentrl_jax.learner.data_shards import agree_on_layout
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.optimizer import AdamWConfig, OptimizerConfig
from agentrl_jax.learner.packing import PackedLayout, split_bins
from agentrl_jax.learner.train_state import TrainState
from agentrl_jax.policy import Params, Policy
from agentrl_jax.rollout.runtime import Runtime
from agentrl_jax.training.algorithm import Algorithm
from agentrl_jax.trajectories import Group, Trajectory
from agentrl_jax.trajectory_record import TrajectoryTraining


@dataclass
class PairwiseConfig:
    """Takes groups of pairs, or of any even number of independent dialogues; the log-ratio is over
    the tokens of the turn where the two of a pair diverge.
    """

    loss: PairwiseLoss
    rewards: RewardTransform | None = None  # applied to each group before pairing
    unfinished_reward: float | None = None  # r where the reply at turn h did not end by itself
    kl: float = 0.0  # r -= kl (ln pi_t - ln pi_start) of the reply at turn h
    # the log-ratio is to the initial policy (DPO's), not to the policy before the step
    fixed_reference: bool = False
    top_layers: int = 0  # number of last layers that are trained; 0: all weights
    epochs: int = 1  # over the collected pairs
    minibatches: int = 1  # optimizer steps per epoch, each on its split of the pairs
    optimizer: OptimizerConfig = field(default_factory=AdamWConfig)
    # tokens per packed row: at least both sequences of a pair; with `prompt_length` at least the
    # part of a sequence after the shared prompt
    bin_length: int = 512
    # columns of the prompt, computed once for both of a pair; 0: each sequence has its own copy
    prompt_length: int = 0
    microbatch: int = 16  # packed rows per gradient call

    def build(self, policy: Policy, mesh: Mesh, steps: int) -> "PairwiseTrainer":
        return PairwiseTrainer(self, policy, mesh, steps)


class PairwiseTrainer(Algorithm):
    """Computes rewards, forms pairs, scores them under pi_t, and takes some passes of one loss over
    them.
    """

    def __init__(self, config: PairwiseConfig, policy: Policy, mesh: Mesh, steps: int) -> None:
        self._config = c = copy.deepcopy(config)
        if min(c.epochs, c.minibatches, c.microbatch) < 1 or min(c.kl, c.prompt_length) < 0:
            raise UserError(
                "a pairwise method needs epochs, minibatches, microbatch >= 1 and kl, "
                "prompt_length >= 0"
            )
        if c.prompt_length and not policy.supports_branches:
            raise UserError(
                f"{type(policy).__name__} takes no rows with branches: leave prompt_length at 0"
            )
        tx = c.optimizer.build(steps * c.epochs * c.minibatches)
        if c.top_layers:
            tx = freeze_all_but_last(tx, policy, c.top_layers)
        self._learner = Learner(policy, tx, self._loss, mesh)
        self._bins_per_microbatch = self._learner.data_shard.num_local_rows(c.microbatch)
        self._needs_reference = c.fixed_reference or c.kl > 0
        self._steps, self._record = 0, PairRecord()

    def init(self, key: Array, params: Params) -> TrainState:
        """A state whose `extra` is the initial policy, where the log-ratio or the KL need it."""
        state = self._learner.init(key, params)
        reference = jax.tree.map(jnp.copy, state.params) if self._needs_reference else None
        return dataclasses.replace(state, extra=reference)

    def host_state(self) -> Any:
        return {"steps": self._steps}

    def load_host_state(self, state: Any) -> None:
        self._steps = state["steps"]

    def _loss(
        self, logp: Array, entropy: Array, batch: PairwiseBatch
    ) -> tuple[Array, dict[str, Array]]:
        logp_diff, reward_diff = log_ratio(logp, batch), jnp.asarray(batch.reward_diff)
        loss = self._config.loss(logp_diff, reward_diff)
        # 1/2 where the rewards are equal or the log-ratio is 0
        agreement = 0.5 + 0.5 * jnp.sign(logp_diff * reward_diff)
        return loss, {
            "pair_loss": loss,
            "entropy": entropy,
            "log_ratio": jnp.abs(logp_diff),
            "logp_gap": jnp.abs(logp - batch.anchor_logp),
            "agreement": agreement,
        }

    def step(
        self, state: TrainState, experience: Sequence[Group], runtime: Runtime
    ) -> tuple[TrainState, dict[str, Any]]:
        """`epochs` passes over the pairs in `minibatches` optimizer steps each. Without any pair it
        is a counted skip.
        """
        c, process_group, step = self._config, runtime.process_group, self._steps
        self._steps += 1
        groups = [c.rewards(group, step) for group in experience] if c.rewards else list(experience)
        pairs, dropped = preference_pairs_of(groups)
        reward_diffs = self._reward_differences(pairs)
        totals = [float(np.abs(reward_diffs).sum()), len(pairs), *dropped.values()]
        gap, count, *dropped_counts = np.sum(
            process_group.all_gather("pairs", totals), axis=0
        ).tolist()
        metrics = {
            "pairs": count,
            "pairs/gap": gap / max(count, 1),
            **{f"pairs/{name}": n for name, n in zip(dropped, dropped_counts)},
        }
        splits = np.array_split(np.arange(len(pairs)), c.minibatches)
        self._record = PairRecord(groups)
        minibatches = [
            self._microbatches(state, [pairs[i] for i in split], reward_diffs[split], runtime)
            for split in splits
        ]
        updates: list[dict[str, Array]] = []
        for minibatch in [x for x in minibatches if x] * c.epochs:
            is_first = not updates
            if is_first and not c.fixed_reference:
                minibatch = [
                    dataclasses.replace(x, is_on_policy=np.ones_like(x.is_on_policy))
                    for x in minibatch
                ]
            state, update = self._learner.update(state, minibatch)
            # Of the first update: d, which is 0 unless the reference is fixed, and the difference
            # of two programs' log-probs under the same weights.
            first = {f"first/{name}": update[name] for name in ("log_ratio", "logp_gap")}
            updates.append({**update, **(first if is_first else {})})
        return state, metrics | {"skipped": float(not updates), "device": updates}

    def training_of(
        self, trajectories: Sequence[Trajectory]
    ) -> Sequence[TrajectoryTraining | None]:
        """The weight of a token is that of its pair, its advantage the reward of its reply less the
        other one's.
        """
        return self._record.of(trajectories)

    def _reward_differences(self, pairs: Sequence[Pair]) -> np.ndarray:
        """r - r' of each pair."""
        scores = np.array([x.total_reward for pair in pairs for x in pair.dialogues])
        if self._config.unfinished_reward is not None:
            is_finished = [finished for pair in pairs for finished in pair.is_finished]
            scores = np.where(is_finished, scores, self._config.unfinished_reward)
        return scores[0::2] - scores[1::2]

    def _microbatches(
        self,
        state: TrainState,
        pairs: Sequence[Pair],
        reward_diffs: np.ndarray,
        runtime: Runtime,
    ) -> list[PairwiseBatch]:
        """The microbatches of some pairs, with the log-probs of their tokens under pi_t, which are
        added to the step's record.
        """
        c, sequences = self._config, [x for pair in pairs for x in pair.sequences]
        process_group, invariants = runtime.process_group, runtime.invariants
        num_bins = self._bins_per_microbatch
        num_pairs = sum(process_group.all_gather("pairs of a minibatch", len(pairs)))
        packed = pack_pairs(sequences, c.prompt_length, c.bin_length, num_bins)
        layout = agree_on_layout(process_group, self._learner.data_shard, packed, num_bins)
        if layout is None:
            return []
        tokens = reply_tokens(sequences)
        logp = ref_logp = self._score_layout(state.params, layout)
        if self._needs_reference:
            ref_logp = self._score_layout(state.extra, layout)
        if c.kl:
            bins, columns = layout.packed_coordinates(tokens.sequence, tokens.position)
            signed_kl = tokens.sign * (logp - ref_logp)[bins, columns]
            reward_diffs = reward_diffs - c.kl * np.bincount(
                tokens.pair, signed_kl, minlength=len(pairs)
            )
        anchor_logp = ref_logp if c.fixed_reference else logp
        batch = make_pairwise_batch(layout, tokens, reward_diffs, anchor_logp, num_pairs)
        microbatches = split_bins(batch, num_bins)
        self._record.minibatches.append(
            PairedTokens.of_minibatch(
                pairs,
                tokens,
                layout,
                logp,
                ref_logp if self._needs_reference else None,
                reward_diffs,
                num_pairs,
            )
        )
        replies = [x.turns[pair.turn].calls for pair in pairs for x in pair.dialogues]
        invariants.check(trained_replies, replies, sequences)
        invariants.check(packed_rows, layout, [x.batch for x in microbatches])
        return microbatches

    def _score_layout(self, params: Params, layout: PackedLayout) -> np.ndarray:
        """The learner's log-probs of a whole layout, [bins, length], in the microbatches of
        training.
        """
        batch = layout.to_batch(np.zeros((layout.num_bins, layout.bin_length), np.float32))
        parts = split_bins(batch, self._bins_per_microbatch)
        # all are dispatched before the first is fetched
        logps = [self._learner.score(params, part)[0] for part in parts]
        return np.concatenate([self._learner.data_shard.local_rows(x) for x in logps])
