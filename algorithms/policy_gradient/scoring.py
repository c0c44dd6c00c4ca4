"""The scoring pass: what models compute for each policy-written token before the update, gathered
from packed batches to [N].
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.algorithms.losses.importance import ImportanceCorrection
from agentrl_jax.learner.learner import Learner
from agentrl_jax.learner.packing import PackedLayout, split_bins
from agentrl_jax.learner.sequences import TokenIndex, TrainingSequence
from agentrl_jax.policy import Params


def scoring_sequence(tokens: np.ndarray, is_action: np.ndarray) -> TrainingSequence:
    """A sequence to score without having sampled it: one turn, no sampler log-probs or version."""
    n = len(tokens)
    return TrainingSequence(
        tokens=tokens,
        action_mask=is_action,
        sampler_logp=np.zeros(n, np.float32),
        version=np.full(n, -1, np.int32),
        temperature=np.ones(n, np.float32),
        turn=np.where(is_action, 0, -1),
    )


def packed_sequence_ids(
    layout: PackedLayout,
    token_sequence: np.ndarray,
    token_position: np.ndarray,
    sequence_key: np.ndarray,
) -> np.ndarray:
    """An id in [0, T) for each token in its packed row, equal where training sequence and key are
    equal: the column of the first such token, int [N].
    """
    if not len(sequence_key):
        return np.zeros(0, np.int64)
    pair = token_sequence * (int(sequence_key.max()) + 1) + sequence_key
    _, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
    return layout.packed_coordinates(token_sequence, token_position)[1][first][inverse]


class ScoringPass:
    """All sequences of a process, packed once, for several models to score one after another."""

    def __init__(
        self, layout: PackedLayout | None, indices: TokenIndex, microbatch_rows: int
    ) -> None:
        """`layout` None: no process has a sequence; then all scores are empty."""
        self._layout, self._indices, self._microbatch_rows = layout, indices, microbatch_rows
        if layout is not None:
            self._token_positions = layout.packed_coordinates(
                indices.token_sequence, indices.token_position
            )
            no_weight = np.zeros((layout.num_bins, layout.bin_length), np.float32)
            self._microbatches = split_bins(layout.to_batch(no_weight), microbatch_rows)

    def token_scores(self, learner: Learner, params: Params) -> list[np.ndarray]:
        """The outputs of `learner.score`, each [N]."""
        if self._layout is None:
            return [np.zeros(0), np.zeros(0)]
        # All microbatches are dispatched before the first result is awaited.
        scores = [learner.score(params, batch) for batch in self._microbatches]
        return [
            np.concatenate([learner.data_shard.local_rows(score[i]) for score in scores])[
                self._token_positions
            ]
            for i in range(len(scores[0]))
        ]

    def importance_weights(
        self, correction_fn: "CompiledCorrection", logp: np.ndarray, sequence_key: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The weights of an importance correction, float64 [N], and what it keeps, bool [N]."""
        if self._layout is None:
            return np.ones(0), np.ones(0, bool)
        positions = self._indices.token_sequence, self._indices.token_position
        packed_logp = self._layout.scatter(logp, *positions)
        ids = packed_sequence_ids(self._layout, *positions, sequence_key)
        packed_ids = self._layout.scatter(ids, *positions).astype(np.int32)
        results = [
            correction_fn(
                packed_logp[i : i + self._microbatch_rows],
                np.asarray(batch.sampler_logp),
                np.asarray(batch.action_mask),
                packed_ids[i : i + self._microbatch_rows],
            )
            for i, batch in zip(
                range(0, len(packed_logp), self._microbatch_rows), self._microbatches
            )
        ]
        weight, keep = (
            np.concatenate([np.asarray(result[i]) for result in results])[self._token_positions]
            for i in (0, 1)
        )
        return weight.astype(np.float64), keep


CompiledCorrection = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Sequence[jax.Array]]


def compile_correction(correction: ImportanceCorrection) -> CompiledCorrection:
    """An importance correction, compiled for this process's own device."""
    return jax.jit(
        lambda logp, sampler_logp, mask, ids: correction(jnp.asarray(logp), sampler_logp, mask, ids)
    )
