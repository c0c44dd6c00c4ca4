"""The distinct training sequences among many."""

from collections.abc import Sequence

import numpy as np

from agentrl_jax.learner.sequences import TrainingSequence


def unique_sequences(
    sequences: Sequence[TrainingSequence],
) -> tuple[list[TrainingSequence], np.ndarray]:
    """The distinct sequences, and for each sequence the index of its distinct one, int [sequences].

    Sequences are equal where their tokens, action masks, temperatures and images are.
    """
    keys = [
        (x.tokens.tobytes(), x.action_mask.tobytes(), x.temperature.tobytes(), x.images)
        for x in sequences
    ]
    index_of_key = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    indices = np.array([index_of_key[key] for key in keys], np.int64)
    return [sequences[i] for i in np.unique(indices, return_index=True)[1]], indices
