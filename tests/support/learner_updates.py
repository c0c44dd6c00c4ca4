"""Batches for a learner's updates, and comparisons of what comes out."""

from typing import Any

import jax
import numpy as np
from support.fixtures import random_trajectory

from agentrl_jax.algorithms.offline.behavior_cloning import BehaviorCloningBatch
from agentrl_jax.learner.packing import Batch, PackedLayout, pack
from agentrl_jax.learner.sequences import sequences_of

LENGTH, ROWS = 12, 16


def batch_of(seed: int, rows: int = ROWS) -> tuple[PackedLayout, Batch]:
    """Rows in bins, with weights that sum to 1."""
    rng = np.random.default_rng(seed)
    sequences = [
        sequences_of(
            random_trajectory([(2, 2, False, 0.0), (1, int(rng.integers(1, 4)), False, 0.0)], rng)
        )[0]
        for _ in range(rows)
    ]
    layout = pack(sequences, LENGTH, rows)
    weight = np.where(
        layout.to_batch(np.zeros((layout.num_bins, LENGTH), np.float32)).action_mask,
        rng.random((layout.num_bins, LENGTH)),
        0,
    )
    return layout, layout.to_batch((weight / weight.sum()).astype(np.float32))


def split_batch(batch: Batch, size: int) -> list[BehaviorCloningBatch]:
    """Microbatches of `size` rows."""
    return [
        BehaviorCloningBatch(batch=jax.tree.map(lambda x, i=i: x[i : i + size], batch))
        for i in range(0, len(batch.tokens), size)
    ]


def assert_close(a: Any, b: Any, atol: float = 1e-5) -> None:
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, atol=atol, rtol=0),
        jax.device_get(a),
        jax.device_get(b),
    )
