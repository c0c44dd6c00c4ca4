"""The score pass: what models say of each policy-written token before the update, brought from packed batches to [N]."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from agentrl_jax.algorithms.mismatch import Correction
from agentrl_jax.batch import Layout, split
from agentrl_jax.learner import Learner
from agentrl_jax.policy import Params
from agentrl_jax.rows import Indices


def columns_of(layout: Layout, token_row: np.ndarray, token_position: np.ndarray, key: np.ndarray) -> np.ndarray:
    """An id for each token in its packed row, the same where row and key are: the column of the sequence's first token, int [N]."""
    if not len(key):
        return np.zeros(0, np.int64)
    _, first, inverse = np.unique(token_row * (int(key.max()) + 1) + key, return_index=True, return_inverse=True)
    return layout.place(token_row, token_position)[1][first][inverse]


class Scored:
    """One batch of all of a process's rows, laid out, and what is read of it by one model after another."""

    def __init__(self, layout: Layout | None, indices: Indices, rows: int) -> None:
        """`layout` None: no process has a row; then all that is read is empty."""
        self._layout, self._indices, self._rows = layout, indices, rows
        if layout is not None:
            self._at = layout.place(indices.token_row, indices.token_position)
            self._parts = split(layout.batch(np.zeros((layout.bins, layout.length), np.float32)), rows)

    def read(self, learner: Learner, params: Params) -> list[np.ndarray]:
        """What `learner` reads, each [N]."""
        if self._layout is None:
            return [np.zeros(0), np.zeros(0)]
        # All microbatches are dispatched before the first is waited for.
        found = [learner.score(params, part) for part in self._parts]
        return [np.concatenate([learner.share.take(one[i]) for one in found])[self._at] for i in range(len(found[0]))]

    def corrected(self, correct: "Corrector", logp: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The weights for what sampler and learner disagree on, and what is kept, each [N]."""
        if self._layout is None:
            return np.ones(0), np.ones(0, bool)
        position = self._indices.token_row, self._indices.token_position
        shown = self._layout.scatter(logp, *position)
        ids = self._layout.scatter(columns_of(self._layout, *position, key), *position).astype(np.int32)
        found = [
            correct(shown[i : i + self._rows], np.asarray(part.sampler_logp), np.asarray(part.action_mask), ids[i : i + self._rows])
            for i, part in zip(range(0, len(shown), self._rows), self._parts)
        ]
        weight, keep = (np.concatenate([np.asarray(one[i]) for one in found])[self._at] for i in (0, 1))
        return weight.astype(np.float64), keep


Corrector = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Sequence[jax.Array]]


def corrector(correction: Correction) -> Corrector:
    """A correction of slot W, compiled for this process's own device."""
    return jax.jit(lambda logp, sampler_logp, mask, ids: correction(jnp.asarray(logp), sampler_logp, mask, ids))
